package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"portolan.dev/portolan/internal/cluster"
	"portolan.dev/portolan/internal/pod/dnsconfig"
)

// completePod completes the reference of a Pod or workload: NAMESPACE/POD, or
// NAMESPACE/KIND/NAME for a workload.
func (f *subjectFlags) completePod(
	cmd *cobra.Command, args []string, _ string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 && cmd.Name() != "explain" || f.file != "" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return f.source.completing(cmd, func(v *cluster.View) (names []cobra.Completion) {
		for _, s := range dnsconfig.Subjects(v) {
			switch {
			case f.source.access.namespace != "" && s.Namespace != f.source.access.namespace:
			case s.Pod != nil:
				names = append(names, s.Namespace+"/"+s.Name)
			default:
				names = append(names, s.Namespace+"/"+strings.ToLower(s.Kind.String())+"/"+s.Name)
			}
		}
		return names
	})
}

// completeName completes the name of a Service as a Pod with the usual search list may look
// it up: SERVICE in the Pod's namespace, SERVICE.NAMESPACE in others.
func (f *explainFlags) completeName(
	cmd *cobra.Command, args []string, _ string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	own := ""
	if ref, err := dnsconfig.ParseReference(f.from); f.from != "" && err == nil {
		own = ref.In(orDefault(f.pod.source.access.namespace)).Namespace
	}
	return f.pod.source.completing(cmd, func(v *cluster.View) (names []cobra.Completion) {
		for s := range v.Services() {
			name := s.Name + "." + s.Namespace
			if s.Namespace == own {
				name = s.Name
			}
			names = append(names, name)
		}
		return names
	})
}

// completeFQDN completes the fully qualified name of a Service.
func (f *sourceFlags) completeFQDN(cmd *cobra.Command) ([]cobra.Completion, cobra.ShellCompDirective) {
	c, err := f.readOnce()
	if err != nil || len(c.DNS.Zones) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	domain := strings.TrimSuffix(c.DNS.Zones[0], ".")
	return f.completing(cmd, func(v *cluster.View) (names []cobra.Completion) {
		for s := range v.Services() {
			names = append(names, s.Name+"."+s.Namespace+".svc."+domain)
		}
		return names
	})
}
