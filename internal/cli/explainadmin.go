package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	podapp "portolan.dev/portolan/internal/pod/app"
	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/pod/path"
)

// forServer are the flags of explain that go with --admin.
var forServer = map[string]bool{
	"admin": true, "from": true, "to": true, "node": true, "type": true, "libc": true, "method": true, "header": true,
	"namespace": true, "color": true, "output": true,
	"admin-token-file": true, "admin-ca": true, "admin-cert": true, "admin-key": true,
}

// askServer prints what a running server explains.
func (f *explainFlags) askServer(cmd *cobra.Command, target string) (err error) {
	if err := errors.Join(f.format.check(), f.color.check()); err != nil {
		return err
	}
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if !forServer[flag.Name] && err == nil {
			err = fmt.Errorf("--%s does not go with --admin: the server explains, from what it has read", flag.Name)
		}
	})
	if err != nil {
		return err
	}
	style := f.style(cmd)
	q := url.Values{"target": {target}, "output": {string(f.format)}, "header": f.headers}
	for name, value := range map[string]string{
		"from": f.from, "to": f.to, "node": f.onNode, "method": f.method, "type": f.rrtype, "libc": f.libc,
		"namespace": f.pod.source.access.namespace,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if style.Width > 0 {
		q.Set("width", strconv.Itoa(style.Width))
	}
	if style.Color {
		q.Set("color", "true")
	}
	exit, err := f.explanation(cmd, q)
	if err != nil {
		return err
	}
	if layer := exit - path.ExitLayer; exit != exitDone && (layer < 0 || layer >= len(path.Layers())) {
		exit = exitNegative
	}
	return ended(exit)
}

// explanation prints the explanation of a server, and returns the exit status that goes with it.
func (f *explainFlags) explanation(cmd *cobra.Command, q url.Values) (exit int, err error) {
	at := f.admin.at
	ctx, cancel := context.WithTimeout(cmd.Context(), adminTime)
	defer cancel()
	response, err := f.admin.send(ctx, http.MethodGet, podapp.ExplainPath+"?"+q.Encode())
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return 0, f.notExplained(response)
	}
	if exit, err = strconv.Atoi(response.Header.Get(podapp.ExitField)); err != nil {
		return 0, fmt.Errorf("%s: the answer is not that of a Portolan server", at)
	}
	text, err := readAnswer(response.Body)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", at, err)
	}
	shown := plainText(string(text), f.style(cmd))
	if f.format == "json" {
		shown = string(escapeControls(text))
	}
	_, err = io.WriteString(cmd.OutOrStdout(), shown)
	return exit, err
}

// notExplained returns why a server does not explain.
func (f *explainFlags) notExplained(response *http.Response) error {
	if response.StatusCode == http.StatusBadRequest {
		return errors.New(explain.Plain(refusal(response)))
	}
	return f.admin.refused(response)
}
