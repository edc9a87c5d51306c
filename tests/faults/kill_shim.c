/* Counts the calls that change the file system, and ends the process at one of them.
 *
 * Loaded with LD_PRELOAD: the functions below stand before those of the C library. A process arms itself:
 *
 *     kill_arm(n, HALF or 0, folder)  the n-th counted call does not happen: the process ends with status 137, as by
 *                                 SIGKILL, nothing flushed. With HALF only calls that write data are counted, and half
 *                                 of the n-th call's data are written before the end. n = 0 counts alone. Calls outside
 *                                 of `folder` are not counted; NULL counts all.
 *     kill_disarm(), kill_counted(), kill_written(), kill_journal()  stop; calls; bytes of data; "name path" lines.
 *
 * What cannot be seen: stores into a mapped file (only msync is counted, wherever it is), what the C library itself
 * writes when a FILE's buffer is full (fwrite, fflush and fclose are counted), and system calls made without the C
 * library: the Rust of safetensors renames a temporary file of its own so, between two calls that are counted.
 * test_kill_harness.py holds that Python, NumPy, torch and safetensors write through what is counted here.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define HALF 1
#define KILLED 137
#define JOURNAL (1 << 20)
#define REAL(result, name, ...)                                                                                        \
    static result (*real)(__VA_ARGS__);                                                                                \
    if (!real) real = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

static atomic_int armed;
static atomic_long calls, bytes, used;
static long last;
static int mode_of_end;
static char under[PATH_MAX], lines[JOURNAL];

void kill_arm(long n, int mode, const char *folder) {
    calls = bytes = used = 0;
    lines[0] = 0;
    last = n;
    mode_of_end = mode;
    under[0] = 0;
    if (folder && !realpath(folder, under)) abort();
    armed = 1;
}
void kill_disarm(void) { armed = 0; }
long kill_counted(void) { return calls; }
long kill_written(void) { return bytes; }
const char *kill_journal(void) { return lines; }

/* -- where ------------------------------------------------------------------------------------------------------- */

static int is_under(const char *path) {
    size_t length = strlen(under);
    return !length || (!strncmp(path, under, length) && (path[length] == '/' || !path[length]));
}

static int of_number(int number, char *out) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", number);
    ssize_t length = readlink(link, out, PATH_MAX - 1);
    if (length < 0) return 0;
    out[length] = 0;
    return out[0] == '/' && is_under(out);
}

/* The path with the links of its folder followed; its last name may be a link or not there. */
static int of_path(int folder, const char *path, char *out) {
    char whole[PATH_MAX], base[PATH_MAX] = "";
    if (!path) return 0;
    if (path[0] != '/') {
        if (folder == AT_FDCWD) {
            if (!getcwd(base, sizeof base)) return 0;
        } else {
            char link[64];
            snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
            ssize_t length = readlink(link, base, sizeof base - 1);
            if (length < 0) return 0;
            base[length] = 0;
        }
    }
    if ((size_t)snprintf(whole, sizeof whole, "%s%s%s", base, base[0] ? "/" : "", path) >= sizeof whole) return 0;
    size_t length = strlen(whole);
    while (length > 1 && whole[length - 1] == '/') whole[--length] = 0;
    char *name = strrchr(whole, '/');
    if (!name) return 0;
    *name++ = 0;
    if (!realpath(whole[0] ? whole : "/", out)) return 0;
    if (strlen(out) + strlen(name) + 2 > PATH_MAX) return 0;
    strcat(strcat(out, "/"), name);
    return is_under(out);
}

/* -- when -------------------------------------------------------------------------------------------------------- */

/* Count a call; 1 where the process is to end at it. */
static int reached(const char *name, const char *path, int data) {
    if (mode_of_end == HALF && !data) return 0;
    long now = atomic_fetch_add(&calls, 1) + 1;
    char line[PATH_MAX + 64];
    int length = snprintf(line, sizeof line, "%s %s\n", name, path);
    long place = atomic_fetch_add(&used, length);
    if (place + length < JOURNAL) memcpy(lines + place, line, length + 1);
    return last && now == last;
}

static void change(const char *name, const char *path) {
    if (reached(name, path, 0)) _exit(KILLED);
}
static void at_path(const char *name, int folder, const char *path) {
    char found[PATH_MAX];
    int before = errno;
    if (armed && of_path(folder, path, found)) change(name, found);
    errno = before;
}
static void at_number(const char *name, int number) {
    char found[PATH_MAX];
    int before = errno;
    if (armed && of_number(number, found)) change(name, found);
    errno = before;
}
static void at_two(const char *name, int a, const char *from, int b, const char *to) {
    char found[PATH_MAX];
    int before = errno;
    if (armed && (of_path(b, to, found) || of_path(a, from, found))) change(name, found);
    errno = before;
}
/* How many of `count` bytes to write before the end: -1 is all of them, and no end. */
static ssize_t of_data(const char *name, int number, size_t count) {
    char found[PATH_MAX];
    ssize_t part = -1;
    int before = errno;
    if (armed && of_number(number, found)) {
        if (reached(name, found, 1)) {
            if (mode_of_end != HALF) _exit(KILLED);
            part = count / 2;
        } else {
            atomic_fetch_add(&bytes, (long)count);
        }
    }
    errno = before;
    return part;
}

/* -- files that come and go -------------------------------------------------------------------------------------- */

#define CHANGES(flags) ((flags) & (O_CREAT | O_TRUNC))
#define MODE                                                                                                           \
    mode_t mode = 0;                                                                                                   \
    if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE) {                                                       \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode = va_arg(more, mode_t);                                                                                   \
        va_end(more);                                                                                                  \
    }
#define OPEN(name)                                                                                                     \
    int name(const char *path, int flags, ...) {                                                                       \
        MODE REAL(int, name, const char *, int, ...);                                                                  \
        if (CHANGES(flags)) at_path("open", AT_FDCWD, path);                                                           \
        return real(path, flags, mode);                                                                                \
    }
#define OPENAT(name)                                                                                                   \
    int name(int folder, const char *path, int flags, ...) {                                                           \
        MODE REAL(int, name, int, const char *, int, ...);                                                             \
        if (CHANGES(flags)) at_path("open", folder, path);                                                             \
        return real(folder, path, flags, mode);                                                                        \
    }
#define CREAT(name)                                                                                                    \
    int name(const char *path, mode_t mode) {                                                                          \
        REAL(int, name, const char *, mode_t);                                                                         \
        at_path("open", AT_FDCWD, path);                                                                               \
        return real(path, mode);                                                                                       \
    }
#define FOPEN(name)                                                                                                    \
    FILE *name(const char *path, const char *mode) {                                                                   \
        REAL(FILE *, name, const char *, const char *);                                                                \
        if (mode[0] != 'r') at_path("open", AT_FDCWD, path);                                                           \
        return real(path, mode);                                                                                       \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
CREAT(creat)
CREAT(creat64)
FOPEN(fopen)
FOPEN(fopen64)
int __open_2(const char *path, int flags) { return open(path, flags); }
int __open64_2(const char *path, int flags) { return open64(path, flags); }
int __openat_2(int folder, const char *path, int flags) { return openat(folder, path, flags); }
int __openat64_2(int folder, const char *path, int flags) { return openat64(folder, path, flags); }

#define ONE_PATH(name, shown)                                                                                          \
    int name(const char *path) {                                                                                       \
        REAL(int, name, const char *);                                                                                 \
        at_path(shown, AT_FDCWD, path);                                                                                \
        return real(path);                                                                                             \
    }
ONE_PATH(unlink, "unlink")
ONE_PATH(rmdir, "rmdir")
ONE_PATH(remove, "unlink")

int unlinkat(int folder, const char *path, int flags) {
    REAL(int, unlinkat, int, const char *, int);
    at_path(flags & AT_REMOVEDIR ? "rmdir" : "unlink", folder, path);
    return real(folder, path, flags);
}
int mkdir(const char *path, mode_t mode) {
    REAL(int, mkdir, const char *, mode_t);
    at_path("mkdir", AT_FDCWD, path);
    return real(path, mode);
}
int mkdirat(int folder, const char *path, mode_t mode) {
    REAL(int, mkdirat, int, const char *, mode_t);
    at_path("mkdir", folder, path);
    return real(folder, path, mode);
}
int rename(const char *from, const char *to) {
    REAL(int, rename, const char *, const char *);
    at_two("rename", AT_FDCWD, from, AT_FDCWD, to);
    return real(from, to);
}
int renameat(int a, const char *from, int b, const char *to) {
    REAL(int, renameat, int, const char *, int, const char *);
    at_two("rename", a, from, b, to);
    return real(a, from, b, to);
}
int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
    REAL(int, renameat2, int, const char *, int, const char *, unsigned);
    at_two("rename", a, from, b, to);
    return real(a, from, b, to, flags);
}
int link(const char *from, const char *to) {
    REAL(int, link, const char *, const char *);
    at_path("link", AT_FDCWD, to);
    return real(from, to);
}
int linkat(int a, const char *from, int b, const char *to, int flags) {
    REAL(int, linkat, int, const char *, int, const char *, int);
    at_path("link", b, to);
    return real(a, from, b, to, flags);
}
int symlink(const char *text, const char *to) {
    REAL(int, symlink, const char *, const char *);
    at_path("symlink", AT_FDCWD, to);
    return real(text, to);
}
int symlinkat(const char *text, int folder, const char *to) {
    REAL(int, symlinkat, const char *, int, const char *);
    at_path("symlink", folder, to);
    return real(text, folder, to);
}
int chmod(const char *path, mode_t mode) {
    REAL(int, chmod, const char *, mode_t);
    at_path("chmod", AT_FDCWD, path);
    return real(path, mode);
}
int fchmod(int number, mode_t mode) {
    REAL(int, fchmod, int, mode_t);
    at_number("chmod", number);
    return real(number, mode);
}
int fchmodat(int folder, const char *path, mode_t mode, int flags) {
    REAL(int, fchmodat, int, const char *, mode_t, int);
    at_path("chmod", folder, path);
    return real(folder, path, mode, flags);
}

/* -- length and disk --------------------------------------------------------------------------------------------- */

#define TRUNCATE(name, type)                                                                                           \
    int name(const char *path, type length) {                                                                          \
        REAL(int, name, const char *, type);                                                                           \
        at_path("truncate", AT_FDCWD, path);                                                                           \
        return real(path, length);                                                                                     \
    }
#define FTRUNCATE(name, type)                                                                                          \
    int name(int number, type length) {                                                                                \
        REAL(int, name, int, type);                                                                                    \
        at_number("truncate", number);                                                                                 \
        return real(number, length);                                                                                   \
    }
#define ALLOCATE(name, type)                                                                                           \
    int name(int number, type start, type length) {                                                                    \
        REAL(int, name, int, type, type);                                                                              \
        at_number("allocate", number);                                                                                 \
        return real(number, start, length);                                                                            \
    }
#define SYNC(name)                                                                                                     \
    int name(int number) {                                                                                             \
        REAL(int, name, int);                                                                                          \
        at_number("sync", number);                                                                                     \
        return real(number);                                                                                           \
    }
TRUNCATE(truncate, off_t)
TRUNCATE(truncate64, off64_t)
FTRUNCATE(ftruncate, off_t)
FTRUNCATE(ftruncate64, off64_t)
ALLOCATE(posix_fallocate, off_t)
ALLOCATE(posix_fallocate64, off64_t)
SYNC(fsync)
SYNC(fdatasync)

int msync(void *start, size_t length, int flags) {
    REAL(int, msync, void *, size_t, int);
    if (armed) change("sync", "(a mapped file)");
    return real(start, length, flags);
}

/* -- data -------------------------------------------------------------------------------------------------------- */

ssize_t write(int number, const void *data, size_t count) {
    REAL(ssize_t, write, int, const void *, size_t);
    ssize_t part = of_data("write", number, count);
    if (part < 0) return real(number, data, count);
    real(number, data, part);
    _exit(KILLED);
}
#define PWRITE(name, type)                                                                                             \
    ssize_t name(int number, const void *data, size_t count, type offset) {                                            \
        REAL(ssize_t, name, int, const void *, size_t, type);                                                          \
        ssize_t part = of_data("write", number, count);                                                                \
        if (part < 0) return real(number, data, count, offset);                                                        \
        real(number, data, part, offset);                                                                              \
        _exit(KILLED);                                                                                                 \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

static size_t sum(const struct iovec *parts, int count) {
    size_t total = 0;
    for (int i = 0; i < count; i++) total += parts[i].iov_len;
    return total;
}
/* Half of what several buffers hold. */
static void first_half(int number, const struct iovec *parts, int count, ssize_t part, off64_t offset) {
    for (int i = 0; i < count && part > 0; i++) {
        size_t some = parts[i].iov_len < (size_t)part ? parts[i].iov_len : (size_t)part;
        armed = 0;
        if (offset < 0 ? write(number, parts[i].iov_base, some) : pwrite64(number, parts[i].iov_base, some, offset)) {
        }
        offset += offset < 0 ? 0 : (off64_t)some;
        part -= some;
    }
    _exit(KILLED);
}
ssize_t writev(int number, const struct iovec *parts, int count) {
    REAL(ssize_t, writev, int, const struct iovec *, int);
    ssize_t part = of_data("write", number, sum(parts, count));
    if (part < 0) return real(number, parts, count);
    first_half(number, parts, count, part, -1);
    return -1;
}
#define PWRITEV(name, type)                                                                                            \
    ssize_t name(int number, const struct iovec *parts, int count, type offset) {                                      \
        REAL(ssize_t, name, int, const struct iovec *, int, type);                                                     \
        ssize_t part = of_data("write", number, sum(parts, count));                                                    \
        if (part < 0) return real(number, parts, count, offset);                                                       \
        first_half(number, parts, count, part, offset);                                                                \
        return -1;                                                                                                     \
    }
PWRITEV(pwritev, off_t)
PWRITEV(pwritev64, off64_t)

#define SENDFILE(name, type)                                                                                           \
    ssize_t name(int out, int in, type *offset, size_t count) {                                                        \
        REAL(ssize_t, name, int, int, type *, size_t);                                                                 \
        struct stat found;                                                                                             \
        size_t there = fstat(in, &found) || (size_t)found.st_size > count ? count : (size_t)found.st_size;             \
        ssize_t part = of_data("write", out, there);                                                                   \
        if (part < 0) return real(out, in, offset, count);                                                             \
        real(out, in, offset, part);                                                                                   \
        _exit(KILLED);                                                                                                 \
    }
SENDFILE(sendfile, off_t)
SENDFILE(sendfile64, off64_t)

ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t count, unsigned flags) {
    REAL(ssize_t, copy_file_range, int, off64_t *, int, off64_t *, size_t, unsigned);
    struct stat found;
    size_t there = fstat(in, &found) || (size_t)found.st_size > count ? count : (size_t)found.st_size;
    ssize_t part = of_data("write", out, there);
    if (part < 0) return real(in, from, out, to, count, flags);
    real(in, from, out, to, part, flags);
    _exit(KILLED);
}

#define FWRITE(name)                                                                                                   \
    size_t name(const void *data, size_t size, size_t count, FILE *file) {                                             \
        REAL(size_t, name, const void *, size_t, size_t, FILE *);                                                      \
        ssize_t part = armed && fileno(file) >= 0 ? of_data("write", fileno(file), size *count) : -1;                  \
        if (part < 0) return real(data, size, count, file);                                                            \
        armed = 0;                                                                                                     \
        real(data, 1, part, file);                                                                                     \
        fflush(file);                                                                                                  \
        _exit(KILLED);                                                                                                 \
    }
#undef fwrite_unlocked
FWRITE(fwrite)
FWRITE(fwrite_unlocked)

int fflush(FILE *file) {
    REAL(int, fflush, FILE *);
    if (armed && file && fileno(file) >= 0 && __fpending(file)) at_number("flush", fileno(file));
    return real(file);
}
int fclose(FILE *file) {
    REAL(int, fclose, FILE *);
    if (armed && fileno(file) >= 0 && __fpending(file)) at_number("flush", fileno(file));
    return real(file);
}

/* -- system calls by their number -------------------------------------------------------------------------------- */

long syscall(long number, ...) {
    REAL(long, syscall, long, ...);
    long a[6];
    va_list more;
    va_start(more, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(more, long);
    va_end(more);
    if (number == SYS_renameat2) at_two("rename", (int)a[0], (char *)a[1], (int)a[2], (char *)a[3]);
    if (number == SYS_copy_file_range && of_data("write", (int)a[2], (size_t)a[4]) >= 0) _exit(KILLED);
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
