/* Looks a name up with the C library's resolver, and prints what came of it in
   the words of package stub.

       resolve KIND NAME

   KIND is 0 for all addresses, A or AAAA, by getaddrinfo, or SRV, by res_search. */
#define _GNU_SOURCE
#include <arpa/nameser.h>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static const char *addresses(int family, const char *name) {
	struct addrinfo hints = { .ai_family = family, .ai_socktype = SOCK_STREAM };
	struct addrinfo *list;
	int err = getaddrinfo(name, NULL, &hints, &list);
	switch (err) {
	case 0:
		freeaddrinfo(list);
		return "found";
	case EAI_NODATA:
		return "no data";
	case EAI_AGAIN:
		return "try again";
	case EAI_FAIL:
		return "failed";
	case EAI_NONAME:
	case EAI_ADDRFAMILY:
		return "no such name";
	}
	return gai_strerror(err);
}

static const char *services(const char *name) {
	unsigned char answer[65536];
	int n = res_search(name, 1, 33, answer, sizeof answer);
	if (n < 0) {
		switch (h_errno) {
		case HOST_NOT_FOUND:
			return "no such name";
		case NO_DATA:
			return "no data";
		case NO_RECOVERY:
			return "failed";
		}
		return "try again";
	}
	if (n < 12)
		return "try again";
	if ((answer[3] & 15) == 3)
		return "no such name";
	if (answer[3] & 15)
		return "failed";
	return answer[6] || answer[7] ? "found" : "no data";
}

int main(int argc, char **argv) {
	if (argc != 3)
		return 2;
	if (!strcmp(argv[1], "SRV"))
		puts(services(argv[2]));
	else if (!strcmp(argv[1], "A"))
		puts(addresses(AF_INET, argv[2]));
	else if (!strcmp(argv[1], "AAAA"))
		puts(addresses(AF_INET6, argv[2]));
	else
		puts(addresses(AF_UNSPEC, argv[2]));
	return 0;
}
