package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/ops/report"
)

// routeProtocol is the protocol of Portolan's routes and rules in the kernel (package route).
const routeProtocol = 80

// kernel returns the files of what Portolan has in this host's kernel.
func (r *reporter) kernel(ctx context.Context, settings config.Config) (files []report.File) {
	tables, err := ownTables(ctx, settings)
	if err != nil {
		r.archive.Miss("kernel/nftables", err.Error())
	}
	for _, t := range tables {
		files = append(files, program("kernel/nftables-"+t.name+".txt", "nftables table "+t.family+" "+t.name,
			"nft", "--stateless", "list", "table", t.family, t.name))
	}
	for _, family := range []string{"4", "6"} {
		files = append(files,
			ownLines("kernel/routes"+family+".txt", "routes of Portolan on this host, IPv"+family,
				"ip", "-"+family, "-details", "route", "show", "table", "all"),
			ownLines("kernel/rules"+family+".txt", "routing rules of Portolan on this host, IPv"+family,
				"ip", "-"+family, "-details", "rule", "show"))
	}
	return files
}

// ownLines returns a file with the lines of a program's output that have the protocol of Portolan's routes and rules.
func ownLines(name, about, file string, args ...string) report.File {
	return report.File{Name: name, About: about, Collect: func(ctx context.Context, w io.Writer) error {
		out := lineFilter{w: w, word: " proto " + strconv.Itoa(routeProtocol) + " "}
		return errors.Join(run(ctx, &out, file, args...), out.flush())
	}}
}

// lineFilter passes on the lines that have a word.
type lineFilter struct {
	w    io.Writer
	word string
	rest []byte // of a line that is not complete
}

func (l *lineFilter) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		l.rest = rest
		if err := l.pass(line); err != nil {
			return 0, err
		}
	}
}

func (l *lineFilter) pass(line []byte) (err error) {
	if strings.Contains(string(line)+" ", l.word) {
		_, err = fmt.Fprintf(l.w, "%s\n", line)
	}
	return err
}

// flush passes on the last line, if it has no line feed.
func (l *lineFilter) flush() error { return l.pass(l.rest) }

// nftTable is a table of nftables.
type nftTable struct{ family, name string }

// ownTables lists the tables of Portolan: those of the settings, and those with its name.
func ownTables(ctx context.Context, settings config.Config) (own []nftTable, err error) {
	var out bytes.Buffer
	if err := run(ctx, &out, "nft", "list", "tables"); err != nil {
		return nil, err
	}
	configured := []string{settings.Policy.Table}
	if compiled, err := settings.Compile(); err == nil {
		configured = append(configured, compiled.Proxy.Table.Name)
	}
	for line := range strings.Lines(out.String()) {
		fields := strings.Fields(line) // table inet portolan
		if len(fields) != 3 {
			continue
		}
		t := nftTable{fields[1], fields[2]}
		if strings.HasPrefix(t.name, "portolan") || t.name == configured[0] || t.name == configured[len(configured)-1] {
			own = append(own, t)
		}
	}
	return own, nil
}

// program returns a file with the output of a program.
func program(name, about, file string, args ...string) report.File {
	return report.File{Name: name, About: about, Collect: func(ctx context.Context, w io.Writer) error {
		return run(ctx, w, file, args...)
	}}
}

// run runs a program, which writes to w.
func run(ctx context.Context, w io.Writer, file string, args ...string) error {
	var words bytes.Buffer
	cmd := exec.CommandContext(ctx, file, args...)
	cmd.Stdout, cmd.Stderr = w, &words
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("the program %s is not installed", file)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", file, strings.Join(args, " "), err, strings.TrimSpace(words.String()))
	}
	return nil
}
