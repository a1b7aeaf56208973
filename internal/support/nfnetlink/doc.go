// Package nfnetlink speaks nftables' part of netlink (linux/netfilter/nf_tables.h, nfnetlink.h): it
// encodes transactions and attributes, sends them, lists what the kernel has, compares rules, and reports
// changes by other programs.
//
//	Batch ──Commit──► kernel ──Each──► attributes ──IsRule──► as it should be, or not
//	                    └──Listener.Watch──► Notice
package nfnetlink
