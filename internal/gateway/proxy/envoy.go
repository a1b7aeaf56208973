package proxy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"portolan.dev/portolan/internal/gateway/balance"
	"portolan.dev/portolan/internal/gateway/table"
	"portolan.dev/portolan/internal/gateway/upstream"
	"portolan.dev/portolan/internal/gateway/wire"
)

// askEndpoint sends a request to an endpoint of an authorization service, and reads the whole response.
func (p *Proxy) askEndpoint(
	ctx context.Context, up table.Upstream, out *upstream.Request, e *balance.Endpoint,
) (*reply, error) {
	defer e.Done()
	defer out.Free()
	if !upstream.Valid(out.Method, out.Target, out.Host) {
		return nil, errAuthURL
	}
	pool := p.cfg.Endpoints.Pool(up)
	res, err := p.do(ctx, up, e, out)
	if pool != nil && ctx.Err() == nil {
		pool.Report(e, err == nil)
	}
	if err != nil {
		return nil, err
	}
	defer res.Close()
	got := &reply{status: res.Status, header: out.Header}
	for {
		part, err := res.Next()
		if len(got.body) <= maxAuthBody {
			got.body = append(got.body, part...)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	if len(got.body) > maxAuthBody {
		got.body = nil
	}
	// grpc-status
	maps.Copy(got.header, res.Trailer())
	return got, nil
}

// checkEnvoy asks a service by the method Check of envoy.service.auth.v3.Authorization.
func (p *Proxy) checkEnvoy(
	ctx context.Context, r *http.Request, x *exchange, auth *table.ExternalAuth,
) (*decision, error) {
	message := p.checkRequest(r, x, auth)
	framed := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))) // not compressed
	framed = append(framed, message...)
	out := &upstream.Request{
		Method: http.MethodPost, Host: auth.Upstream.Service + "." + auth.Upstream.Namespace,
		Target: "/envoy.service.auth.v3.Authorization/Check", Trailers: true, Length: int64(len(framed)),
		Header: make(http.Header), Certificate: x.certificate,
		Fields: upstream.Fields{{Name: "Content-Type", Value: "application/grpc"}},
	}
	asked := *auth
	asked.MaxBody = 1 // so that there is a body
	got, err := p.askService(ctx, &asked, out, framed)
	if err != nil {
		return nil, err
	}
	if status := got.header.Get("Grpc-Status"); got.status != http.StatusOK || status != "0" {
		return nil, fmt.Errorf("status %d, grpc-status %q: %s", got.status, status, got.header.Get("Grpc-Message"))
	}
	const prefix = 5
	if len(got.body) < prefix || got.body[0] != 0 ||
		int(binary.BigEndian.Uint32(got.body[1:])) != len(got.body)-prefix {
		return nil, errMessage
	}
	return parseCheckResponse(got.body[prefix:])
}

// message appends a field that is a message or a text, unless it is empty.
func message[T string | []byte](b []byte, number protowire.Number, content T) []byte {
	if len(content) == 0 {
		return b
	}
	b = protowire.AppendTag(b, number, protowire.BytesType)
	return append(protowire.AppendVarint(b, uint64(len(content))), content...)
}

// checkRequest encodes a CheckRequest (envoy/service/auth/v3/external_auth.proto and attribute_context.proto).
func (p *Proxy) checkRequest(r *http.Request, x *exchange, auth *table.ExternalAuth) []byte {
	const (
		attributes                                            = 1
		source, request                                       = 1, 4 // of AttributeContext
		httpRequest                                           = 2    // of its Request
		method, headers, path, host, scheme, size, proto, raw = 2, 3, 4, 5, 6, 9, 10, 12
	)
	var h []byte
	h = message(h, method, r.Method)
	fields := make(map[string]string)
	for _, f := range p.fields(nil, r, nil) {
		name := strings.ToLower(f.Name)
		if auth.RequestHeaders != nil && !slices.Contains(auth.RequestHeaders, f.Name) {
			continue
		}
		if before, ok := fields[name]; ok {
			f.Value = before + "," + f.Value
		}
		fields[name] = f.Value
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		h = message(h, headers, message(message(nil, 1, name), 2, fields[name]))
	}
	values := valuesOf(r, x)
	h = message(h, path, values.URI)
	h = message(h, host, values.HTTPHost)
	h = message(h, scheme, values.Scheme)
	if n := r.ContentLength; n >= 0 {
		h = protowire.AppendVarint(protowire.AppendTag(h, size, protowire.VarintType), uint64(n))
	}
	h = message(h, proto, r.Proto)
	if auth.MaxBody > 0 {
		h = message(h, raw, x.content)
	}
	peer, _ := netip.ParseAddrPort(r.RemoteAddr)
	from := netip.AddrPortFrom(Client(r, p.cfg.Trusted), peer.Port())
	context := message(nil, source, peerOf(from))
	context = message(context, request, message(nil, httpRequest, h))
	return message(nil, attributes, context)
}

// peerOf encodes an AttributeContext.Peer with a SocketAddress (envoy/config/core/v3/address.proto).
func peerOf(at netip.AddrPort) []byte {
	socket := message(nil, 2, at.Addr().String())
	socket = protowire.AppendVarint(protowire.AppendTag(socket, 3, protowire.VarintType), uint64(at.Port()))
	return message(nil, 1, message(nil, 1, socket))
}

var errMessage = errors.New("the response of the authorization service is not one of gRPC")

// protoFields calls a function for each field of a message: with the content of those that are messages or texts, and
// the number of those that are numbers.
func protoFields(b []byte, do func(number protowire.Number, content []byte, value uint64) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errMessage
		}
		b = b[n:]
		var content []byte
		var value uint64
		switch kind {
		case protowire.BytesType:
			content, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			value, n = protowire.ConsumeVarint(b)
		default:
			n = protowire.ConsumeFieldValue(number, kind, b)
		}
		if n < 0 {
			return errMessage
		}
		b = b[n:]
		if err := do(number, content, value); err != nil {
			return err
		}
	}
	return nil
}

// parseCheckResponse decodes a CheckResponse (envoy/service/auth/v3/external_auth.proto). Status 0 allows the request.
func parseCheckResponse(b []byte) (*decision, error) {
	var status, denied, ok []byte
	err := protoFields(b, func(number protowire.Number, content []byte, _ uint64) error {
		switch number {
		case 1:
			status = content
		case 2:
			denied = content
		case 3:
			ok = content
		}
		return nil
	})
	code := uint64(0)
	if err == nil {
		err = protoFields(status, func(number protowire.Number, _ []byte, value uint64) error {
			if number == 1 {
				code = value
			}
			return nil
		})
	}
	switch {
	case err != nil:
		return nil, err
	case code != 0:
		return parseDenied(denied)
	case denied != nil:
		return nil, errMessage // it says both
	}
	return parseAllowed(ok)
}

// parseAllowed decodes an OkHttpResponse. What it says of the query and of metadata is refused, as it cannot be done.
func parseAllowed(b []byte) (*decision, error) {
	made := &decision{allowed: true}
	err := protoFields(b, func(number protowire.Number, content []byte, _ uint64) error {
		switch number {
		case 2, 6:
			f, appends, err := parseOption(content)
			switch {
			case err != nil:
				return err
			case number == 6:
				made.granted.response = append(made.granted.response, f)
			case appends:
				made.granted.add = append(made.granted.add, f)
			default:
				made.granted.remove = append(made.granted.remove, f.Name)
				made.granted.set = append(made.granted.set, f)
			}
		case 5:
			made.granted.remove = append(made.granted.remove, http.CanonicalHeaderKey(string(content)))
		case 7, 8:
			return errMessage
		}
		return nil
	})
	return made, err
}

// parseDenied decodes a DeniedHttpResponse: without a status it is 403.
func parseDenied(b []byte) (*decision, error) {
	made := &decision{status: http.StatusForbidden, reason: Refused, header: make(http.Header)}
	err := protoFields(b, func(number protowire.Number, content []byte, _ uint64) error {
		switch number {
		case 1:
			return protoFields(content, func(number protowire.Number, _ []byte, value uint64) error {
				if number == 1 && value >= http.StatusMultipleChoices && value < 600 {
					made.status = int(value)
				}
				return nil
			})
		case 2:
			f, _, err := parseOption(content)
			if err == nil {
				made.header.Add(f.Name, f.Value)
			}
			return err
		case 3:
			made.body = content
		}
		return nil
	})
	return made, err
}

// parseOption decodes a HeaderValueOption (envoy/config/core/v3/base.proto).
func parseOption(b []byte) (f table.Field, appends bool, err error) {
	err = protoFields(b, func(number protowire.Number, content []byte, _ uint64) error {
		switch number {
		case 1:
			return protoFields(content, func(number protowire.Number, content []byte, _ uint64) error {
				switch number {
				case 1:
					f.Name = http.CanonicalHeaderKey(string(content))
				case 2, 3:
					f.Value = string(content)
				}
				return nil
			})
		case 2: // google.protobuf.BoolValue
			return protoFields(content, func(_ protowire.Number, _ []byte, value uint64) error {
				appends = value != 0
				return nil
			})
		}
		return nil
	})
	f.Value = wire.Clean(f.Value)
	if err == nil && !wire.IsToken(f.Name) {
		err = errors.New("the authorization service sets an invalid header " + strconv.Quote(f.Name))
	}
	return f, appends, err
}
