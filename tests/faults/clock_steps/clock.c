/* The clock of the process that this is loaded into (LD_PRELOAD): the real one, and as many seconds more as the
   eight bytes of the file CLOCK_OFFSET_FILE say at the moment. Clocks that nobody sets go on as they are. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *offset;

__attribute__((constructor)) static void begin(void) {
    const char *file = getenv("CLOCK_OFFSET_FILE");
    int fd = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *page = mmap(0, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
    if (page != MAP_FAILED) offset = page;
    close(fd);
}

int clock_gettime(clockid_t which, struct timespec *t) {
    int failed = (int)syscall(SYS_clock_gettime, which, t);
    if (!failed && offset && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) t->tv_sec += *offset;
    return failed;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
    struct timespec t;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &t)) return -1;
    tv->tv_sec = t.tv_sec;
    tv->tv_usec = t.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec t;
    if (clock_gettime(CLOCK_REALTIME, &t)) return -1;
    if (out) *out = t.tv_sec;
    return t.tv_sec;
}
