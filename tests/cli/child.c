/* Runs the built binary. */
#include "tests/cli/child.h"

#include <criterion/criterion.h>

#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char home[] = "/tmp/assay-test-XXXXXX";
static int has_home;

const char *child_home(void) {
    if (has_home)
        return home;
    memcpy(home, "/tmp/assay-test-XXXXXX", sizeof home);
    if (!mkdtemp(home))
        cr_fail("cannot make a temporary directory: %s", strerror(errno));
    has_home = 1;
    return home;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw) {
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

void child_home_remove(void) {
    if (has_home)
        nftw(home, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    has_home = 0;
}

static void binary(char *out, size_t n) {
    const char *build = getenv("ASSAY_BUILD");
    snprintf(out, n, "%s/assay", build && *build ? build : "build");
}

/* Splits text in place. */
static void split(char *text, char **argv, int max) {
    int n = 1;
    for (char *c = text; *c && n < max - 1;) {
        c += strspn(c, " ");
        if (!*c)
            break;
        char end = *c == '\'' ? '\'' : ' ';
        c += *c == '\'';
        argv[n++] = c;
        c += strcspn(c, (char[]){end, '\0'});
        if (*c)
            *c++ = '\0';
    }
    argv[n] = NULL;
}

static void drain(int fd, char *text, size_t *n) {
    char sink[4096];
    char *to = *n + 1 < CHILD_TEXT_MAX ? text + *n : sink;
    size_t room = to == sink ? sizeof sink : CHILD_TEXT_MAX - 1 - *n;
    ssize_t got = read(fd, to, room);
    if (got > 0 && to != sink)
        *n += (size_t)got;
}

const struct child *assay(const char *args) {
    static struct child c;
    char path[512], text[4096], *argv[64] = {0};
    int out[2], err[2];
    binary(path, sizeof path);
    snprintf(text, sizeof text, "%s", args);
    argv[0] = path;
    split(text, argv, 64);
    CHECK(pipe(out) == 0 && pipe(err) == 0);
    const char *data = child_home();
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* nothing outlives a failed test */
        dup2(out[1], 1);
        dup2(err[1], 2);
        close(out[0]);
        close(err[0]);
        setenv("XDG_DATA_HOME", data, 1);
        unsetenv("ASSAY_DB");
        setenv("COLUMNS", "100", 1);
        execv(path, argv);
        _exit(127);
    }
    close(out[1]);
    close(err[1]);
    size_t nout = 0, nerr = 0;
    struct pollfd p[2] = {{.fd = out[0], .events = POLLIN}, {.fd = err[0], .events = POLLIN}};
    int open = 2;
    while (open) {
        poll(p, 2, -1);
        for (int i = 0; i < 2; i++) {
            if (p[i].fd >= 0 && (p[i].revents & POLLIN)) {
                drain(p[i].fd, i ? c.err : c.out, i ? &nerr : &nout);
            } else if (p[i].fd >= 0 && p[i].revents) {
                close(p[i].fd);
                p[i].fd = -1;
                open--;
            }
        }
    }
    c.out[nout] = '\0';
    c.err[nerr] = '\0';
    int status;
    waitpid(pid, &status, 0);
    c.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return &c;
}

json_t *child_object(const struct child *c) {
    json_error_t e;
    /* without JSON_DISABLE_EOF_CHECK: bytes after the object are an error */
    json_t *v = json_loads(c->out, JSON_REJECT_DUPLICATES, &e);
    CHECK(v && json_is_object(v), "expected exactly one JSON object, found (%s): %.400s", e.text,
              c->out);
    return v;
}
