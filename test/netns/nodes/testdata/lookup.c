/* Looks names up with the C library's getaddrinfo, for addresses of all families:
   those that it reads, one a line, each as soon as it was read and beside the
   others. For each it prints a line: the name, what came of it, how many
   microseconds that took, and the addresses. */
#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static long running;

static long long now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

static const char *outcome(int err) {
	switch (err) {
	case 0:
		return "found";
	case EAI_NONAME:
#ifdef EAI_NODATA
	case EAI_NODATA:
#endif
		return "none";
	case EAI_AGAIN:
		return "again";
	}
	return "failed";
}

static void print(const char *name, int err, long long took, struct addrinfo *list) {
	char text[INET6_ADDRSTRLEN];
	printf("%s %s %lld", name, outcome(err), took);
	for (struct addrinfo *a = err ? NULL : list; a; a = a->ai_next) {
		const void *addr = a->ai_family == AF_INET
			? (void *)&((struct sockaddr_in *)a->ai_addr)->sin_addr
			: (void *)&((struct sockaddr_in6 *)a->ai_addr)->sin6_addr;
		printf(" %s", inet_ntop(a->ai_family, addr, text, sizeof text));
	}
	printf("\n");
	fflush(stdout);
}

static void *look_up(void *arg) {
	char *name = arg;
	struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	struct addrinfo *list = NULL;
	long long begin = now();
	int err = getaddrinfo(name, NULL, &hints, &list);
	long long took = now() - begin;
	pthread_mutex_lock(&mutex);
	print(name, err, took, list);
	running--;
	pthread_cond_signal(&ended);
	pthread_mutex_unlock(&mutex);
	if (!err)
		freeaddrinfo(list);
	free(name);
	return NULL;
}

int main(void) {
	char line[1025];
	pthread_attr_t attr;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, 256 * 1024);
	while (fgets(line, sizeof line, stdin)) {
		pthread_t thread;
		line[strcspn(line, "\n")] = 0;
		pthread_mutex_lock(&mutex);
		running++;
		pthread_mutex_unlock(&mutex);
		if (pthread_create(&thread, &attr, look_up, strdup(line)))
			return 1;
	}
	pthread_mutex_lock(&mutex);
	while (running)
		pthread_cond_wait(&ended, &mutex);
	return 0;
}
