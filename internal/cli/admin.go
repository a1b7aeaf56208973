package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/pod/explain"
	"portolan.dev/portolan/internal/support/deadline"
)

// adminFlags are the flags of commands that talk to a running process: its admin address, and the files with what it
// takes of clients that are not on loopback.
type adminFlags struct {
	at                       string
	tokenFile, ca, cert, key string
}

const (
	// defaultAdmin is the admin address of a server.
	defaultAdmin = "127.0.0.1:9153"
	// adminTime is how long a command waits for a running process.
	adminTime = 30 * time.Second
)

func (f *adminFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.at, "admin", defaultAdmin, "the server's admin address is `ADDR:PORT`")
	_ = cmd.RegisterFlagCompletionFunc("admin", cobra.NoFileCompletions)
}

// addAccess adds flags for addresses that are not on loopback.
func (f *adminFlags) addAccess(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.tokenFile, "admin-token-file", "", "send the token in this `FILE` to the admin address")
	cmd.Flags().StringVar(
		&f.ca, "admin-ca", "", "with --admin https://HOST:PORT, trust the authorities in this `FILE` and not the system's",
	)
	cmd.Flags().StringVar(
		&f.cert,
		"admin-cert",
		"",
		"with --admin https://HOST:PORT, the client certificate in this `FILE`",
	)
	cmd.Flags().StringVar(&f.key, "admin-key", "", "the key of --admin-cert, in this `FILE`")
	for _, name := range []string{"admin-token-file", "admin-ca", "admin-cert", "admin-key"} {
		_ = cmd.MarkFlagFilename(name)
	}
}

// url returns the admin address as a URL. Its errors are of flags.
func (f *adminFlags) url() (string, error) {
	if _, err := netip.ParseAddrPort(f.at); err == nil {
		if f.ca != "" || f.cert != "" || f.key != "" {
			return "", errors.New("--admin-ca, --admin-cert and --admin-key go with TLS: --admin https://" + f.at)
		}
		return "http://" + f.at, nil
	}
	u, err := url.Parse(f.at)
	isBase := err == nil && u.Port() != "" && *u == url.URL{Scheme: u.Scheme, Host: u.Host}
	if !isBase || u.Scheme != "https" && u.Scheme != "http" {
		return "", fmt.Errorf("--admin: %q is not an address and port, such as %s, or https://HOST:PORT", f.at, defaultAdmin)
	}
	if (f.cert == "") != (f.key == "") {
		return "", errors.New("--admin-cert and --admin-key go together")
	}
	return u.String(), nil
}

// client returns a client for admin addresses. What listens there may not be Portolan: another address than the
// one asked for is not asked, and an answer does not grow when it is unpacked.
func (f *adminFlags) client() (*http.Client, error) {
	const mostHeader = 64 << 10 // in octets
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableCompression: true, DisableKeepAlives: true,
		MaxResponseHeaderBytes: mostHeader, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
	}
	if f.ca != "" {
		text, err := deadline.ReadFile(f.ca, deadline.File, deadline.Small)
		if err != nil {
			return nil, fmt.Errorf("--admin-ca: %w", err)
		}
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--admin-ca: %s: no certificate in PEM", f.ca)
		}
	}
	if f.cert != "" {
		own, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, fmt.Errorf("--admin-cert: %w", err)
		}
		transport.TLSClientConfig.Certificates = []tls.Certificate{own}
	}
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// token returns the token to send; empty for none.
func (f *adminFlags) token() (string, error) {
	if f.tokenFile == "" {
		return "", nil
	}
	text, err := deadline.ReadFile(f.tokenFile, deadline.File, deadline.Small)
	if err != nil {
		return "", fmt.Errorf("--admin-token-file: %w", err)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	if line = strings.TrimSpace(line); line == "" {
		return "", fmt.Errorf("--admin-token-file: %s: no token", f.tokenFile)
	}
	return line, nil
}

// check returns what is wrong with the flags.
func (f *adminFlags) check() error {
	_, err := f.url()
	if err != nil {
		return err
	}
	if _, err = f.client(); err != nil {
		return err
	}
	_, err = f.token()
	return err
}

// send sends a request to the admin address and returns the response, of any status, whose body the caller closes.
func (f *adminFlags) send(ctx context.Context, method, path string) (*http.Response, error) {
	to, err := f.url()
	if err != nil {
		return nil, err
	}
	client, err := f.client()
	if err != nil {
		return nil, err
	}
	token, err := f.token()
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, method, to+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(r)
	if err != nil {
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("the server closed the connection, and its log says why: %w", err)
		}
		return nil, fmt.Errorf("the server's admin address does not answer: %w; --admin names another", err)
	}
	return response, nil
}

// open sends a request to the admin address and returns its answer, which the caller closes.
func (f *adminFlags) open(ctx context.Context, method, path string) (answer io.ReadCloser, err error) {
	response, err := f.send(ctx, method, path)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		return nil, f.refused(response)
	}
	return response.Body, nil
}

// request sends a request to the admin address and copies its answer to w.
func (f *adminFlags) request(ctx context.Context, method, path string, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, adminTime)
	defer cancel()
	answer, err := f.open(ctx, method, path)
	if err != nil {
		return err
	}
	defer answer.Close()
	_, err = io.Copy(w, answer)
	return err
}

// print sends a request to the admin address and prints its answer.
func (f *adminFlags) print(cmd *cobra.Command, method, path string) error {
	w := &plainWriter{Writer: cmd.OutOrStdout()}
	return errors.Join(f.request(cmd.Context(), method, path, w), w.Flush())
}

// printLines prints the lines of JSON of a page as show returns them, until the page or the command ends. Empty lines
// mean nothing.
func (f *adminFlags) printLines(cmd *cobra.Command, path string, show func(line []byte) (string, error)) error {
	ctx := cmd.Context()
	answer, err := f.open(ctx, http.MethodGet, path)
	if err == nil {
		defer answer.Close()
		err = copyLines(cmd.OutOrStdout(), answer, show)
	}
	if ctx.Err() != nil {
		return nil // interrupted
	}
	return err
}

// refused returns the error of a response that is none to what was asked.
func (f *adminFlags) refused(response *http.Response) error {
	reason := cmp.Or(refusal(response), response.Status)
	if response.StatusCode == http.StatusUnauthorized && f.tokenFile == "" {
		reason += "; --admin-token-file sends one"
	}
	return fmt.Errorf("%s: %s", f.at, explain.Plain(reason))
}

// refusal returns the reason in a response that is an error: a member of a JSON object, or the text.
func refusal(response *http.Response) string {
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxProbe)) // what there is of the reason
	var body struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(text, &body) == nil && body.Error != "" {
		return body.Error
	}
	return strings.TrimSpace(string(text))
}
