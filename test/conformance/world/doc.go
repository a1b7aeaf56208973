// Package world runs what conformance tests of the Gateway API need, on one machine and without a container engine:
//
//	network namespace of the test                            of each Pod
//	  etcd, API server, controllers: 127.0.0.1
//	  portolan gateway: the addresses of Gateways
//	  the test: a client of all of them
//	  veth ─────────────────────────────────────────────────  eth0: the address of the Pod
//	                                                          echo-basic of the conformance suite
package world
