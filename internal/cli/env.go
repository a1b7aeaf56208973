package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/dnsconfig"
	"portolan.dev/portolan/internal/pod/serviceenv"
)

func newEnv() *cobra.Command {
	var pod subjectFlags
	var format output
	cmd := &cobra.Command{
		Use:   "env NAMESPACE/POD",
		Short: "Print the variables that a Pod gets for Services",
		Long: `Print the environment variables that the kubelet sets in a Pod's containers for
Services, sorted, as NAME=value lines: those of the Services with a cluster IP in
the Pod's namespace and of the API server, including those for Docker links.
Variables that the container itself sets override them and are not considered.

NAMESPACE/POD names a Pod, or a Deployment, StatefulSet, DaemonSet, Job or CronJob
whose Pods are meant: shop/web-0, shop/web, or shop/deployment/web. With
--filename, the Pod or workload is read from that file.

A container gets the variables of the Services that exist when it starts; this
command assumes that all existing Services did.`,
		Example: `  portolan env shop/web --manifests examples/shop
  docker run --env-file <(portolan env shop/web --manifests examples/shop) IMAGE`,
		Args:              arguments(0, 1),
		ValidArgsFunction: pod.completePod,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := format.check(); err != nil {
				return err
			}
			ref, err := pod.argument(cmd, args)
			if err != nil {
				return err
			}
			settings, err := pod.settings()
			if err != nil {
				return err
			}
			l, subject, err := pod.find(cmd, settings, ref)
			if err != nil {
				return err
			}
			e := l.pods.ServiceEnv(&subject)
			if format == "json" {
				return printJSON(cmd.OutOrStdout(), newEnvJSON(&subject, &e))
			}
			return printEnv(cmd.OutOrStdout(), cmd.ErrOrStderr(), &e, &subject)
		},
	}
	pod.add(cmd)
	format.add(cmd)
	return cmd
}

// printEnv prints the variables on stdout, and warnings and notes on stderr.
func printEnv(stdout, stderr io.Writer, e *serviceenv.Environment, s *dnsconfig.Subject) error {
	for _, w := range envWarnings(e) {
		fmt.Fprintf(stderr, "portolan: warning: %s\n", w)
	}
	for _, n := range envNotes(e, s) {
		fmt.Fprintf(stderr, "portolan: note: %s\n", n)
	}
	var b strings.Builder
	for _, v := range e.Variables {
		fmt.Fprintln(&b, v)
	}
	_, err := io.WriteString(stdout, b.String())
	return err
}

// envWarnings returns the problems that an environment may cause.
func envWarnings(e *serviceenv.Environment) (warnings []string) {
	if size := e.Size(); size >= serviceenv.WarnSize {
		warnings = append(warnings, fmt.Sprintf(
			"%d variables take %d of the %d octets that Linux leaves to the arguments and the environment of a program, "+
				"where nobody changed the limit: beyond that it does not start (argument list too long); "+
				"enableServiceLinks: false in the Pod's spec leaves them out",
			len(e.Variables),
			size,
			serviceenv.Limit,
		))
	}
	for _, c := range e.Conflicts {
		warnings = append(
			warnings,
			fmt.Sprintf(
				"%s is set by the Services %s; the kubelet picks one at random, the last is printed here", c.Name,
				keys(c.Services),
			),
		)
	}
	return warnings
}

// envNotes returns what is unknown about the environment of a Subject's Pods.
func envNotes(e *serviceenv.Environment, s *dnsconfig.Subject) (notes []string) {
	if n := len(e.Pending); n > 0 {
		notes = append(notes, "no cluster IP yet, and no variables (--simulate gives one): "+keys(e.Pending))
	}
	if !e.KubernetesService {
		notes = append(notes, "the Service default/kubernetes, whose variables every Pod in a cluster has, does not exist")
	}
	switch {
	case s.Finished():
		notes = append(notes, s.String()+" has finished; its containers had the variables of the Services at that time")
	case s.Pod != nil && !s.Pod.Simulated && len(s.Pod.IPs) > 0:
		notes = append(
			notes,
			"the Pod lacks the variables of Services that are newer than its containers; their start time is not known",
		)
	}
	return notes
}

// keys lists the first few keys.
func keys(all []cluster.Key) string {
	const most = 5
	var names []string
	for _, k := range all[:min(len(all), most)] {
		names = append(names, k.String())
	}
	text := strings.Join(names, ", ")
	if more := len(all) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// envJSON is the JSON output of env.
type envJSON struct {
	Pod       string            `json:"pod"` // kind and key
	Variables map[string]string `json:"variables"`
	// Octets is the part of Limit that the variables use.
	Octets   int      `json:"octets"`
	Limit    int      `json:"limit"`
	Warnings []string `json:"warnings"`
	Notes    []string `json:"notes"`
}

func newEnvJSON(s *dnsconfig.Subject, e *serviceenv.Environment) envJSON {
	j := envJSON{
		Pod: s.String(), Variables: make(map[string]string, len(e.Variables)), Octets: e.Size(), Limit: serviceenv.Limit,
		Warnings: append([]string{}, envWarnings(e)...), Notes: append([]string{}, envNotes(e, s)...),
	}
	for _, v := range e.Variables {
		j.Variables[v.Name] = v.Value
	}
	return j
}
