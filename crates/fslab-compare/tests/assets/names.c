/*
 * The minimal loop that does the system calls of the workload `names`: create COUNT empty files
 * below the directory ROOT, write them back, stat each twice and remove them, in order of their
 * numbers. Prints the nanoseconds that all creations took, and all removals. Single calls are not
 * timed.
 *
 * Usage: names ROOT COUNT
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static long now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC_RAW, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

int main(int argc, char **argv)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    char path[64];
    struct stat status;
    long count = argc > 2 ? atol(argv[2]) : 0, start, created;
    int root = open(argc > 1 ? argv[1] : "", O_RDONLY | O_DIRECTORY), file;

    if (root < 0 || mkdirat(root, "ordered-0", 0755) < 0)
        fail("root");
    start = now();
    for (long i = 0; i < count; i++) {
        snprintf(path, sizeof path, "ordered-0/name%ld", i);
        file = openat(root, path, flags, 0644);
        if (file < 0 || close(file) < 0)
            fail(path);
    }
    created = now();
    printf("%ld", created - start);
    if (syncfs(root) < 0)
        fail("syncfs");
    for (long i = 0; i < 2 * count; i++) {
        snprintf(path, sizeof path, "ordered-0/name%ld", i % count);
        if (fstatat(root, path, &status, AT_SYMLINK_NOFOLLOW) < 0)
            fail(path);
    }
    start = now();
    for (long i = 0; i < count; i++) {
        snprintf(path, sizeof path, "ordered-0/name%ld", i);
        if (unlinkat(root, path, 0) < 0)
            fail(path);
    }
    printf(" %ld\n", now() - start);
    if (unlinkat(root, "ordered-0", AT_REMOVEDIR) < 0)
        fail("ordered-0");
    return 0;
}
