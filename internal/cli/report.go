package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/config"
	"portolan.dev/portolan/internal/ops/report"
)

// The limits of a report: octets of a file and of all, how long a file and the report may take, and how much of a log
// is read.
const (
	reportFileSize = 4 << 20
	reportSize     = 64 << 20
	reportFileTime = 20 * time.Second
	reportTime     = 3 * time.Minute
	reportLogLines = 2000
)

// defaultAdmins are the admin addresses of a server and of an agent.
var defaultAdmins = []string{defaultAdmin, "127.0.0.1:9154"}

// reportFlags are the flags of report.
type reportFlags struct {
	source                 sourceFlags
	admin                  adminFlags // of each of admins
	admins                 []string
	out                    string
	maskClients, maskNames bool
}

func newReport() *cobra.Command {
	var flags reportFlags
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Collect what a bug report needs, without secrets",
		Long: `Write an archive with what a bug report needs: versions, the settings in force,
readiness, metrics and goroutines of running processes; what portolan check finds,
what a gateway makes of routes, counts of objects, and the logs of Portolan's Pods;
and, on a node, Portolan's nftables tables, routes and rules. The file INDEX in it
says what each file is, and what could not be read and why.

Data of Secrets, tokens, passwords, private keys, cookies and query strings are
removed, and environments of Pods are not read. Names and addresses stay unless
--mask-names and --mask-clients replace them by pseudonyms; INDEX says what is not
replaced. Nothing is sent: read the archive before you attach it.

The exit status is 1 if neither the cluster nor a process could be read.`,
		Example: `  portolan report
  portolan report --admin 127.0.0.1:9154 --mask-clients --mask-names -o report.tar.gz
  portolan report --manifests examples/shop`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return flags.run(cmd) },
	}
	flags.source.addRead(cmd)
	cmd.Flags().StringArrayVar(
		&flags.admins, "admin", defaultAdmins, "ask the process whose admin address is `ADDR:PORT`, repeatable",
	)
	cmd.Flags().StringVarP(
		&flags.out, "output", "o", "", "write the archive to this `FILE`, which must not exist, or to standard output (-) "+
			"(default portolan-report-TIME.tar.gz)",
	)
	cmd.Flags().BoolVar(&flags.maskClients, "mask-clients", false, "replace IP addresses by pseudonyms")
	cmd.Flags().BoolVar(
		&flags.maskNames,
		"mask-names",
		false,
		"replace names of namespaces, objects and hosts, and paths of files, by pseudonyms",
	)
	_ = cmd.RegisterFlagCompletionFunc("admin", cobra.NoFileCompletions)
	flags.admin.addAccess(cmd)
	_ = cmd.MarkFlagFilename("output", "tar.gz")
	return cmd
}

func (f *reportFlags) run(cmd *cobra.Command) error {
	now := time.Now().UTC()
	name := "portolan-report-" + now.Format("20060102-150405")
	if f.out == "" {
		f.out = name + ".tar.gz"
	}
	settings, err := f.check()
	if err != nil {
		return err
	}
	out, err := f.create(cmd)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), reportTime)
	defer cancel()
	cmd.SetContext(ctx)
	clean := report.NewCleaner()
	a := report.New(report.Config{
		Out: out, Directory: name, Time: now, Clean: clean, FileSize: reportFileSize, Size: reportSize,
		Patience: reportFileTime,
	})
	r := reporter{flags: f, cmd: cmd, archive: a, clean: clean}
	err = errors.Join(r.collect(ctx, settings), a.Close(), out.Close())
	if err != nil {
		return fmt.Errorf("report %s: %w", f.out, err)
	}
	return r.print()
}

// check returns the settings. Its errors are of flags.
func (f *reportFlags) check() (settings config.Config, err error) {
	for _, addr := range f.admins {
		if err := f.adminAt(addr).check(); err != nil {
			return settings, err
		}
	}
	if settings, err = f.source.readOnce(); err != nil {
		return settings, err
	}
	if settings.Manifests != "" {
		_, err = os.Stat(settings.Manifests)
		return settings, err
	}
	if f.source.kubeconf != "" || f.source.access.context != "" {
		_, err = newInventory(settings, &f.source)
	}
	return settings, err
}

// create creates the archive's file, which only its owner can read.
func (f *reportFlags) create(cmd *cobra.Command) (io.WriteCloser, error) {
	if f.out == "-" {
		return nopCloser{cmd.OutOrStdout()}, nil
	}
	const mode = 0o600
	return os.OpenFile(f.out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
}

// adminAt returns the flags for one of the admin addresses.
func (f *reportFlags) adminAt(addr string) *adminFlags {
	made := f.admin
	made.at = addr
	return &made
}

// nopCloser is a writer that is closed by others.
type nopCloser struct{ io.Writer }

// Close does nothing.
func (nopCloser) Close() error { return nil }

// reporter collects a report.
type reporter struct {
	flags   *reportFlags
	cmd     *cobra.Command
	archive *report.Archive
	clean   *report.Cleaner
	// empty is set if neither the cluster nor a process could be read.
	empty bool
}

// collect collects all files. What is secret or masked has to be known before the first.
func (r *reporter) collect(ctx context.Context, settings config.Config) error {
	if r.flags.maskClients {
		r.clean.MaskAddresses()
	}
	if r.flags.maskNames {
		names := masker{r.clean}
		names.settings(&r.flags.source, settings)
		names.admins(r.flags.admins)
	}
	for _, secret := range settings.DNS.Cookies.Secrets {
		r.clean.Hide(secret)
	}
	if token, err := r.flags.admin.token(); err == nil && token != "" {
		r.clean.Hide(token)
	}
	r.hideKubeconfig(settings.Kubernetes.Kubeconfig)
	c := r.openCluster()
	files := []report.File{{
		Name: "version.txt", About: "versions of this program and its platform", Code: true,
		Collect: func(_ context.Context, w io.Writer) error {
			_, err := fmt.Fprintf(w, "portolan version %s\n", versions())
			return err
		},
	}}
	if r.flags.source.config != "" {
		files = append(files, report.File{
			Name: "config.yaml", About: "the settings of --config that differ from the defaults",
			Collect: func(_ context.Context, w io.Writer) error {
				text, err := settings.Text(nil)
				if err == nil {
					_, err = w.Write(text)
				}
				return err
			},
		})
	}
	before := len(files)
	for i, addr := range r.flags.admins {
		files = append(files, r.process(ctx, addr, r.flags.directory(i))...)
	}
	noProcess := len(files) == before
	r.empty = noProcess && c.once == nil
	if noProcess {
		r.archive.Miss("process", "no process answered: name the admin address of one with --admin, on its host or through "+
			"kubectl port-forward")
	}
	files = append(files, c.files(settings, &r.flags.source)...)
	files = append(files, r.kernel(ctx, settings)...)
	for _, file := range files {
		if err := r.archive.Add(ctx, file); err != nil {
			return err
		}
	}
	return c.logs(ctx, r)
}

// pages are what a report has of a process's admin address.
// What names are masked is learnt from the first.
var pages = []struct {
	name, path, about string
	learn             func(masker, []byte)
}{
	{"config.yaml", "/debug/config", "settings in force that differ from the defaults", masker.configured},
	{"failures.json", "/api/v1/top?limit=100", "most frequent failures, by reason", masker.failures},
	{"cmdline.txt", "/debug/pprof/cmdline", "command line", masker.arguments},
	{"metrics.txt", "/metrics", "metrics", nil},
	{"goroutines.txt", "/debug/pprof/goroutine?debug=1", "what the process does, as stacks", nil},
	{"memory.txt", "/debug/pprof/heap?debug=1", "memory in use, by the stacks that allocated it", nil},
	{"overview.json", "/api/v1/overview", "parts, sources with their freshness, agents and upstreams", nil},
}

// directory returns the directory in the archive of the process at admin address i: its name has the address,
// or the number of the process if names or addresses are masked.
func (f *reportFlags) directory(i int) string {
	if f.maskClients || f.maskNames {
		return "process-" + strconv.Itoa(i+1)
	}
	return "process-" + strings.NewReplacer("://", "-", ":", "-", "[", "", "]", "").Replace(f.admins[i])
}

// process returns the files of a running process, in a directory of the archive.
func (r *reporter) process(ctx context.Context, addr, dir string) (files []report.File) {
	admin := r.flags.adminAt(addr)
	asking, cancel := context.WithTimeout(ctx, reportFileTime) // the rest of the report needs its time
	defer cancel()
	list, err := admin.open(asking, http.MethodGet, "/healthz")
	if err != nil {
		r.archive.Miss(dir, err.Error())
		return nil
	}
	list.Close()
	for _, p := range pages {
		file := report.File{
			Name: dir + "/" + p.name, About: p.about + " of the process at " + addr,
			Code: strings.HasPrefix(p.path, "/debug/pprof/") && p.learn == nil,
			Collect: func(ctx context.Context, w io.Writer) error {
				if p.name == "cmdline.txt" {
					w = spaced{w}
				}
				return admin.request(ctx, http.MethodGet, p.path, w)
			},
		}
		if p.learn != nil {
			file.Learn = func(text []byte) { p.learn(masker{r.clean}, text) }
		}
		files = append(files, file)
	}
	return append(files, report.File{
		Name: dir + "/ready.txt", About: "readiness of the process at " + addr + ", and what is missing",
		Collect: func(ctx context.Context, w io.Writer) error {
			if err := admin.request(ctx, http.MethodGet, "/readyz", w); err != nil {
				_, err = fmt.Fprintf(w, "not ready: %v\n", err)
				return err
			}
			return nil
		},
	})
}

// spaced replaces the octets between arguments by spaces.
type spaced struct{ io.Writer }

func (s spaced) Write(text []byte) (int, error) {
	if _, err := io.WriteString(s.Writer, strings.ReplaceAll(string(text), "\x00", " ")); err != nil {
		return 0, err
	}
	return len(text), nil
}

// print says where the archive is and what is not in it.
func (r *reporter) print() error {
	stderr := r.cmd.ErrOrStderr()
	for _, missing := range r.archive.Missing() {
		fmt.Fprintf(stderr, "portolan: note: not in the report: %s\n", missing)
	}
	if r.flags.out != "-" {
		_, err := fmt.Fprintf(r.cmd.OutOrStdout(), "%s\nRead it before you attach it: tar -xzOf %s | less\n", r.flags.out,
			r.flags.out)
		if err != nil {
			return err
		}
	}
	if r.empty {
		return errNegative
	}
	return nil
}
