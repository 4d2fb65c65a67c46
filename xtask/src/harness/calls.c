/* Makes the system calls of three workloads of `fslab compare`, without fslab: `names`, the write
 * of `stream`, and `random-io` with direct reads. Prints the elapsed seconds of each phase as JSON.
 *   calls create|stat|delete|write|random DIRECTORY COUNT
 * Also prepares memory as fslab does, because the host of a virtual machine may have taken back
 * free memory (COUNT is in MiB): `touch` uses pages of 2 MiB and ends. `provide` uses small pages,
 * frees all but one of each 2 MiB, prints "ready" and waits for its end. */
#define _GNU_SOURCE
#include <dirent.h>
#include <err.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MIB = 1 << 20, BLOCK = 4096, FILE_MIB = 256 };

static int root;
static char path[64];
static struct timespec started;

static const char *name(unsigned long number) {
    snprintf(path, sizeof path, "ordered-0/name%lu", number);
    return path;
}

static void start(void) { clock_gettime(CLOCK_MONOTONIC_RAW, &started); }

static void stop(const char *phase) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    double seconds = (now.tv_sec - started.tv_sec) + (now.tv_nsec - started.tv_nsec) / 1e9;
    printf("{\"phase\": \"%s\", \"seconds\": %.9f}\n", phase, seconds);
}

static int open_file(const char *file, int flags) {
    int descriptor = openat(root, file, flags | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (descriptor < 0)
        err(1, "%s", file);
    return descriptor;
}

static void close_file(int descriptor) {
    if (close(descriptor) < 0)
        err(1, "close");
}

static void flush(void) {
    if (syncfs(root) < 0)
        err(1, "syncfs");
}

static void create(unsigned long count) {
    if (mkdirat(root, "ordered-0", 0755) < 0)
        err(1, "mkdir");
    start();
    for (unsigned long i = 0; i < count; i++)
        close_file(open_file(name(i), O_WRONLY | O_CREAT | O_EXCL));
    flush();
    stop("create");
}

static void status(unsigned long i) {
    struct stat result;
    if (fstatat(root, name(i), &result, AT_SYMLINK_NOFOLLOW) < 0)
        err(1, "%s", path);
}

/* As the workload does: the names are listed and every status is read once before. */
static void stat_warm(unsigned long count) {
    DIR *directory = fdopendir(open_file("ordered-0", O_RDONLY | O_DIRECTORY));
    while (readdir(directory))
        ;
    closedir(directory);
    for (unsigned long i = 0; i < count; i++)
        status(i);
    start();
    for (unsigned long i = 0; i < count; i++)
        status(i);
    stop("stat");
}

static void delete(unsigned long count) {
    start();
    for (unsigned long i = 0; i < count; i++)
        if (unlinkat(root, name(i), 0) < 0)
            err(1, "%s", path);
    flush();
    stop("delete");
}

static uint64_t state = 88172645463325252u;

static uint64_t draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static char *buffer(size_t bytes) {
    char *memory = aligned_alloc(BLOCK, bytes);
    if (!memory)
        err(1, "memory");
    for (size_t i = 0; i < bytes; i++)
        memory[i] = draw();
    return memory;
}

static void write_file(unsigned long mib, const char *phase) {
    char *data = buffer(MIB);
    start();
    int file = open_file("stream", O_WRONLY | O_CREAT | O_EXCL);
    for (unsigned long i = 0; i < mib; i++)
        if (pwrite(file, data, MIB, (off_t)i * MIB) != MIB)
            err(1, "write");
    if (fsync(file) < 0)
        err(1, "fsync");
    close_file(file);
    flush();
    stop(phase);
}

static void random_reads(unsigned long count) {
    char *data = buffer(BLOCK);
    start();
    int file = open_file("stream", O_RDWR | O_DIRECT);
    for (unsigned long i = 0; i < count; i++) {
        off_t block = draw() % ((uint64_t)FILE_MIB * MIB / BLOCK);
        if (pread(file, data, BLOCK, block * BLOCK) != BLOCK)
            err(1, "read");
    }
    close_file(file);
    flush();
    stop("random");
}

static char *touched(unsigned long mib, int advice) {
    char *memory = mmap(NULL, mib * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        err(1, "memory");
    madvise(memory, mib * MIB, advice);
    for (unsigned long at = 0; at < mib * MIB; at += BLOCK)
        memory[at] = 1;
    return memory;
}

static void provide(unsigned long mib) {
    char *memory = touched(mib, MADV_NOHUGEPAGE);
    for (unsigned long at = 0; at < mib * MIB; at += 2 * MIB)
        if (madvise(memory + at + BLOCK, 2 * MIB - BLOCK, MADV_DONTNEED) < 0)
            err(1, "memory");
    puts("ready");
    fflush(stdout);
    for (;;)
        pause();
}

int main(int argc, char **argv) {
    if (argc != 4)
        errx(2, "wrong number of arguments");
    unsigned long count = strtoul(argv[3], NULL, 10);
    root = open(argv[2], O_RDONLY | O_DIRECTORY);
    if (root < 0)
        err(1, "%s", argv[2]);
    if (!strcmp(argv[1], "create"))
        create(count);
    else if (!strcmp(argv[1], "stat"))
        stat_warm(count);
    else if (!strcmp(argv[1], "delete"))
        delete(count);
    else if (!strcmp(argv[1], "write"))
        write_file(count, "write");
    else if (!strcmp(argv[1], "random"))
        random_reads(count);
    else if (!strcmp(argv[1], "touch"))
        touched(count, MADV_HUGEPAGE);
    else if (!strcmp(argv[1], "provide"))
        provide(count);
    else
        errx(2, "unknown phase %s", argv[1]);
}
