#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct term {
	uint32_t magic, version;
	_Atomic uint64_t sequence;
	_Atomic uint32_t role, term;
	_Atomic uint64_t soft, hard, token, renewals;
};

static uint64_t now(void) {
	struct timespec time;
	clock_gettime(CLOCK_BOOTTIME, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static int held(struct term *term) {
	uint64_t hard = term->hard;
	return now() < hard;
}

/* The token of the term that is held; 0 if there is none. */
static uint64_t held_token(struct term *term) {
	for (int attempt = 0; attempt < 1000; attempt++) {
		uint64_t before = term->sequence;
		uint64_t token = term->token, hard = term->hard;
		if (before % 2 == 0 && term->sequence == before)
			return now() < hard ? token : 0;
	}
	return 0;
}

int main(void) {
	char *number = getenv("TENURE_TERM_FD");
	void *page = number ? mmap(NULL, 4096, PROT_READ, MAP_SHARED, atoi(number), 0) : MAP_FAILED;
	struct term *term = page;
	if (page == MAP_FAILED || term->magic != 0x554E4554 || term->version != 1)
		return 78;
	for (;; usleep(100000)) {
		uint64_t token = held_token(term);
		if (token && held(term))
			printf("writes with token %llu\n", (unsigned long long)token);
		else
			puts("waits");
		fflush(stdout);
	}
}
