/* Faults of a disk, loaded with LD_PRELOAD: counts what a process changes under DRQ_FAULT_ROOT, and kills it or fails.

   DRQ_FAULT_KILL_AT=N  SIGKILL in place of change N (from 1); with DRQ_FAULT_TORN=1 in half of the next write
   DRQ_FAULT_FAIL_AT=N  from change N on, everything that needs space fails with ENOSPC
   DRQ_FAULT_FULL=FILE  while FILE exists, everything that needs space fails with ENOSPC
   DRQ_FAULT_ERRNO=E    another error in place of ENOSPC
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static long own[2], *counts = own; /* changes; faults that took place: the kill, and what failed */
static long kill_at, fail_at;
static int torn, error = ENOSPC, ready;
static const char *root, *full;

static long number(const char *name) {
  const char *text = getenv(name);
  return text ? atol(text) : 0;
}

static void begin(void) {
  if (ready) return;
  ready = 1;
  root = getenv("DRQ_FAULT_ROOT");
  full = getenv("DRQ_FAULT_FULL");
  kill_at = number("DRQ_FAULT_KILL_AT");
  fail_at = number("DRQ_FAULT_FAIL_AT");
  torn = (int)number("DRQ_FAULT_TORN");
  if (getenv("DRQ_FAULT_ERRNO")) error = (int)number("DRQ_FAULT_ERRNO");
}

/* For a process that loads this file itself. */
void drq_fault_arm(long kill, long fail, int half) {
  begin();
  counts[0] = counts[1] = 0;
  kill_at = kill;
  fail_at = fail;
  torn = half;
}
void drq_fault_error(int number) { error = number; }
long drq_fault_changes(void) { return counts[0]; }
/* Count in memory that another process sees, which outlives a kill. */
void drq_fault_count_in(long *shared) { counts = shared; }

static int under(const char *path) {
  size_t length = root ? strlen(root) : 0;
  return length && strncmp(path, root, length) == 0;
}

static int path_under(int folder, const char *path) {
  char where[PATH_MAX * 2], link[64];
  begin();
  if (!root || !path) return 0;
  if (path[0] == '/') return under(path);
  if (folder == AT_FDCWD) {
    if (!getcwd(where, PATH_MAX)) return 0;
  } else {
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t n = readlink(link, where, PATH_MAX);
    if (n < 0) return 0;
    where[n] = 0;
  }
  return under(where);
}

static int file_under(int file) {
  char where[PATH_MAX], link[64];
  begin();
  if (!root || file < 3) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t n = readlink(link, where, sizeof where - 1);
  if (n < 0) return 0;
  where[n] = 0;
  return under(where);
}

static void die(void) {
  __sync_add_and_fetch(&counts[1], 1);
  syscall(SYS_kill, getpid(), SIGKILL);
  for (;;) pause();
}

/* A change; 1 if it must fail. */
static int change(int needs_space) {
  long now = __sync_add_and_fetch(&counts[0], 1);
  if (kill_at && now == kill_at && !torn) die();
  if (!needs_space) return 0;
  if ((fail_at && now >= fail_at) || (full && syscall(SYS_access, full, F_OK) == 0)) {
    __sync_add_and_fetch(&counts[1], 1);
    errno = error;
    return 1;
  }
  return 0;
}

#define REAL(kind, name, ...) \
  static kind (*real)(__VA_ARGS__); \
  if (!real) real = dlsym(RTLD_NEXT, name)

static int opens_to_write(int flags) { return (flags & (O_CREAT | O_TRUNC)) || (flags & O_ACCMODE) != O_RDONLY; }

#define OPEN(function) \
  int function(const char *path, int flags, ...) { \
    REAL(int, #function, const char *, int, ...); \
    va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
    if (opens_to_write(flags) && path_under(AT_FDCWD, path) && change(flags & O_CREAT)) return -1; \
    return real(path, flags, mode); \
  }
OPEN(open)
OPEN(open64)
#define OPENAT(function) \
  int function(int folder, const char *path, int flags, ...) { \
    REAL(int, #function, int, const char *, int, ...); \
    va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, mode_t); va_end(rest); \
    if (opens_to_write(flags) && path_under(folder, path) && change(flags & O_CREAT)) return -1; \
    return real(folder, path, flags, mode); \
  }
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int file, const void *data, size_t size) {
  REAL(ssize_t, "write", int, const void *, size_t);
  if (file_under(file)) {
    if (change(1)) return -1;
    if (torn && kill_at && counts[0] >= kill_at) {
      real(file, data, size / 2);
      die();
    }
  }
  return real(file, data, size);
}

int ftruncate(int file, off_t size) {
  REAL(int, "ftruncate", int, off_t);
  if (file_under(file)) change(0);
  return real(file, size);
}
int ftruncate64(int file, off64_t size) {
  REAL(int, "ftruncate64", int, off64_t);
  if (file_under(file)) change(0);
  return real(file, size);
}
int fsync(int file) {
  REAL(int, "fsync", int);
  if (file_under(file) && change(1)) return -1;
  return real(file);
}
int rename(const char *from, const char *to) {
  REAL(int, "rename", const char *, const char *);
  if (path_under(AT_FDCWD, to)) change(0);
  return real(from, to);
}
int renameat(int a, const char *from, int b, const char *to) {
  REAL(int, "renameat", int, const char *, int, const char *);
  if (path_under(b, to)) change(0);
  return real(a, from, b, to);
}
int unlink(const char *path) {
  REAL(int, "unlink", const char *);
  if (path_under(AT_FDCWD, path)) change(0);
  return real(path);
}
int unlinkat(int folder, const char *path, int flags) {
  REAL(int, "unlinkat", int, const char *, int);
  if (path_under(folder, path)) change(0);
  return real(folder, path, flags);
}
int rmdir(const char *path) {
  REAL(int, "rmdir", const char *);
  if (path_under(AT_FDCWD, path)) change(0);
  return real(path);
}
int mkdir(const char *path, mode_t mode) {
  REAL(int, "mkdir", const char *, mode_t);
  if (path_under(AT_FDCWD, path) && change(1)) return -1;
  return real(path, mode);
}
