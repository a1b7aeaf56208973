// Package traffic has a server that ends as well-behaved Pods do, and a client that counts the
// connections that fail.
//
// A request is an empty line, and the answer is a line with the server's name. A server that is
// told to end goes on as before for its grace time, because proxies learn of it late. Then it
// accepts no connection, and ends each open one after an answer: it sends FIN (RFC 9293, section
// 3.6) and reads until the client has done so too. Thus a connection that fails is no fault of the
// server's.
package traffic
