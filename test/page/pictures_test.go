package page

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
)

// pictures is the folder of the pictures in the documentation.
const pictures = "../../docs/page"

// TestPictures takes the pictures of the documentation with -update, and else verifies that they are there and have the
// size of the views.
func TestPictures(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for name, c := range map[string]struct {
		view, scheme  string
		width, height int64
	}{
		"overview":      {"", "light", 1100, 1000},
		"overview-dark": {"", "dark", 1100, 1000},
		"service":       {"#/service/shop/web", "light", 1100, 1000},
		"explain":       {"#/explain?target=http%3A%2F%2Fserch.shop%2F&from=shop%2Fsearch-0", "light", 1100, 1000},
		"gateways":      {"#/gateways", "light", 1100, 800},
		"tail":          {"#/tail", "dark", 1100, 700},
		"narrow":        {"#/service/shop/web", "light", 360, 900},
	} {
		p := open(t, s.URL, c.view, media("prefers-color-scheme", c.scheme), chromedp.EmulateViewport(c.width, c.height))
		if c.view == "" {
			p.until(`document.querySelector(".plot canvas")`)
		}
		if c.view == "#/tail" {
			p.until(`document.querySelector("tbody tr")`)
		}
		shot, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		compare(t, name, shot)
	}
}

// compare writes a picture with -update, and else compares its size with the one that is kept.
func compare(t *testing.T, name string, shot []byte) {
	t.Helper()
	taken, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	file := filepath.Join(pictures, name+".png")
	if *update {
		if err := os.MkdirAll(pictures, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, small(taken), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%s: %v; run go test -run Pictures -update .", name, err)
	}
	kept, err := png.DecodeConfig(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if got := taken.Bounds(); kept.Width != got.Dx() || kept.Height != got.Dy() {
		t.Errorf("%s is %dx%d, and the view %v; run go test -run Pictures -update .", file, kept.Width, kept.Height, got)
	}
	const most = 150 << 10
	if len(text) > most {
		t.Errorf("%s has %d octets, want at most %d", file, len(text), most)
	}
}

// small returns an image as PNG with at most 256 colors, which the page nearly has.
func small(img image.Image) []byte {
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	palette := paletteOf(img)
	paletted := image.NewPaletted(img.Bounds(), palette)
	near := make(map[color.Color]uint8)
	b := img.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			c := img.At(x, y)
			i, ok := near[c]
			if !ok {
				i = uint8(palette.Index(c))
				near[c] = i
			}
			paletted.SetColorIndex(x, y, i)
		}
	}
	_ = encoder.Encode(&out, paletted) // a buffer takes everything
	return out.Bytes()
}

// paletteOf returns the most frequent colors of an image, at most 256, the most frequent first.
func paletteOf(img image.Image) color.Palette {
	counts := make(map[color.RGBA]int)
	b := img.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			counts[color.RGBAModel.Convert(img.At(x, y)).(color.RGBA)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B))
	})
	palette := make(color.Palette, 0, 256)
	for _, c := range colors[:min(len(colors), cap(palette))] {
		palette = append(palette, c)
	}
	return palette
}
