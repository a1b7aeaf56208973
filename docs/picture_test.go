package docs

import (
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pictured is the command whose picture is in the README.
const pictured = "portolan explain cart --from shop/client --manifests examples/trouble"

// TestPicture: the picture in the README is of what the command prints now.
func TestPicture(t *testing.T) {
	bin := buildBinary(t)
	cmd := exec.CommandContext(t.Context(), "bash", "-c", pictured+" --color always")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "COLUMNS=92")
	out, _ := cmd.Output() // the name does not resolve: status 1
	got := picture("$ " + pictured + "\n" + string(out))
	const file = "explain.svg"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(filepath.Clean(file))
	if err != nil || string(want) != got {
		t.Errorf("docs/%s is out of date (%v); run go test ./docs -update", file, err)
	}
}

var marked = regexp.MustCompile("\x1b\\[(\\d+)m(.*?)\x1b\\[0m")

// colors are those of a dark terminal, by SGR code.
var colors = map[string]string{
	"1": `fill="#ffffff" font-weight="bold"`, "2": `fill="#8b949e"`, "31": `fill="#ff7b72"`, "32": `fill="#7ee787"`, "33": `fill="#e3b341"`,
}

// picture is a terminal's text as SVG.
func picture(text string) string {
	const line, margin, width = 19, 16, 780
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	var b strings.Builder
	height := len(lines)*line + 2*margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="8" fill="#0d1117"/>`+"\n", width, height)
	b.WriteString(`<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="13" fill="#e6edf3" xml:space="preserve">` + "\n")
	for i, l := range lines {
		spans := marked.ReplaceAllStringFunc(html.EscapeString(l), func(m string) string {
			parts := marked.FindStringSubmatch(m)
			return "<tspan " + colors[parts[1]] + ">" + parts[2] + "</tspan>"
		})
		fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text>`+"\n", margin, margin+(i+1)*line-5, spans)
	}
	b.WriteString("</g>\n</svg>\n")
	return b.String()
}
