// Package man writes manual pages of commands, in the macros of man(7), which groff and mandoc accept. It is for
// releases: the program itself does not have it.
package man

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Book is what all pages have in common.
type Book struct {
	Version string
	Time    time.Time
}

// Pages returns the pages of a command and of those below it, by the names of their files, such as portolan-explain.1.
func (b Book) Pages(root *cobra.Command) map[string]string {
	all := make(map[string]string)
	b.add(root, all)
	return all
}

func (b Book) add(cmd *cobra.Command, all map[string]string) {
	if cmd.Hidden {
		return
	}
	all[title(cmd)+".1"] = b.page(cmd)
	for _, below := range cmd.Commands() {
		b.add(below, all)
	}
}

// title is the name of a page.
func title(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// page returns the page of one command.
func (b Book) page(cmd *cobra.Command) string {
	cmd.InitDefaultHelpFlag()
	var p page
	p.line(`.TH "%s" "1" "%s" "portolan %s" "Portolan"`, strings.ToUpper(escape(title(cmd))),
		b.Time.UTC().Format(time.DateOnly), escape(b.Version))
	p.line(".SH NAME")
	p.line(`%s \- %s`, escape(title(cmd)), escape(cmd.Short))
	p.line(".SH SYNOPSIS")
	use := cmd.UseLine()
	if cmd.HasAvailableSubCommands() {
		use = cmd.CommandPath() + " COMMAND [flags]"
	}
	p.line(`\fB%s\fR`, escape(use))
	p.line(".SH DESCRIPTION")
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	p.prose(text)
	p.commands(cmd)
	if cmd.HasAvailableLocalFlags() {
		p.line(".SH OPTIONS")
		cmd.LocalFlags().VisitAll(p.flag)
	}
	if cmd.HasExample() {
		p.line(".SH EXAMPLES")
		p.block(cmd.Example)
	}
	p.exitStatus(text)
	p.seeAlso(cmd)
	return p.String()
}

// page is a page that is being written.
type page struct{ strings.Builder }

func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// prose writes paragraphs. Those with indented lines keep their lines.
func (p *page) prose(text string) {
	for i, paragraph := range strings.Split(strings.Trim(text, "\n"), "\n\n") {
		if strings.HasPrefix(paragraph, " ") || strings.Contains(paragraph, "\n ") {
			p.block(paragraph)
			continue
		}
		if i > 0 {
			p.line(".PP")
		}
		for line := range strings.SplitSeq(paragraph, "\n") {
			p.line("%s", escape(strings.TrimSpace(line)))
		}
	}
}

// block writes lines as they are.
func (p *page) block(text string) {
	p.line(".PP\n.RS 2\n.nf")
	for line := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
		p.line("%s", escape(strings.TrimPrefix(line, "  ")))
	}
	p.line(".fi\n.RE")
}

// commands writes the commands below a command, by group.
func (p *page) commands(cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	p.line(".SH COMMANDS")
	groups := cmd.Groups()
	if len(groups) == 0 {
		groups = []*cobra.Group{{}}
	}
	for _, g := range groups {
		if g.Title != "" {
			p.line(`.SS "%s"`, escape(strings.TrimSuffix(g.Title, ":")))
		}
		for _, c := range cmd.Commands() {
			if c.GroupID == g.ID && !c.Hidden {
				p.line(".TP\n\\fB%s\\fR(1)\n%s", escape(title(c)), escape(c.Short))
			}
		}
	}
}

func (p *page) flag(f *pflag.Flag) {
	if f.Hidden || f.Deprecated != "" {
		return
	}
	name, usage := pflag.UnquoteUsage(f)
	text := `\fB\-\-` + escape(f.Name) + `\fR`
	if f.Shorthand != "" {
		text = `\fB\-` + escape(f.Shorthand) + `\fR, ` + text
	}
	if name != "" {
		text += ` \fI` + escape(name) + `\fR`
	}
	if has := f.DefValue; has != "" && has != "false" && has != "0" && has != "[]" &&
		!strings.Contains(usage, "(default") {
		usage += " (default " + has + ")"
	}
	p.line(".TP\n%s\n%s", text, escape(usage))
}

// exitStatus writes the exit statuses that commands have in common, unless the description of the command has its own.
func (p *page) exitStatus(description string) {
	if strings.Contains(strings.Join(strings.Fields(description), " "), "exit status") {
		return
	}
	p.line(".SH EXIT STATUS")
	p.line("0 if the command did what it is for, 1 if the answer is negative or a problem was found, " +
		"2 after an error, such as wrong arguments.")
}

// seeAlso names the pages above and below a command.
func (p *page) seeAlso(cmd *cobra.Command) {
	var names []string
	if cmd.HasParent() {
		names = append(names, title(cmd.Parent()))
	}
	for _, c := range cmd.Commands() {
		if !c.Hidden {
			names = append(names, title(c))
		}
	}
	if len(names) == 0 {
		return
	}
	p.line(".SH SEE ALSO")
	for i, name := range names {
		comma := ","
		if i == len(names)-1 {
			comma = ""
		}
		p.line(".BR %s (1)%s", escape(name), comma)
	}
}

// escape returns a text that roff(7) prints as it is: no escape sequences, no requests at the beginning of a line, and
// hyphens that may be copied.
func escape(text string) string {
	var b strings.Builder
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		b.WriteString(`\&`)
	}
	for _, r := range text {
		switch {
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case r == '"':
			b.WriteString(`\(dq`)
		case r == '\'':
			b.WriteString(`\(aq`)
		case r == '`':
			b.WriteString(`\(ga`)
		case r == '^':
			b.WriteString(`\(ha`)
		case r == '~':
			b.WriteString(`\(ti`)
		case r > '~':
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
