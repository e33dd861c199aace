/* kill -9 of whole runs at random moments: the register shows each run that was begun, nothing that was
 * acknowledged is lost, and the next start works. */
#include "child.h"

#include "harness/core/clock.h"
#include "harness/core/rng.h"

#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KILLS = 100 };

/* Starts a run and kills it after ns (negative: never); true when it had ended itself, its output (the summary = the
 * acknowledgement) then being in out. */
static bool run_and_kill(const char *exe, const char *db, int64_t ns, char *out, size_t n) {
    int fd[2];
    cr_assert(eq(int, pipe(fd), 0));
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* nothing outlives a failed test */
        dup2(fd[1], 1);
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 2);
        close(fd[0]);
        execl(exe, exe, "run", "offline-batch", "--backend", "null", "-o", "ttft=1ms", "--pattern",
              "concurrency:8", "--requests", "60000", "--warmup", "0", "--db", db, "--json", (char *)NULL);
        _exit(127);
    }
    close(fd[1]);
    struct timespec ts = {ns / NS_PER_S, ns % NS_PER_S};
    if (ns >= 0) {
        nanosleep(&ts, NULL);
        kill(pid, SIGKILL);
    }
    size_t got = 0;
    ssize_t k;
    while (got + 1 < n && (k = read(fd[0], out + got, n - 1 - got)) > 0)
        got += (size_t)k;
    out[got] = '\0';
    close(fd[0]);
    int status;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int64_t scalar(sqlite3 *db, const char *sql) {
    sqlite3_stmt *q;
    cr_assert(eq(int, sqlite3_prepare_v2(db, sql, -1, &q, NULL), SQLITE_OK), "%s: %s", sql,
              sqlite3_errmsg(db));
    cr_assert(eq(int, sqlite3_step(q), SQLITE_ROW));
    int64_t v = sqlite3_column_int64(q, 0);
    sqlite3_finalize(q);
    return v;
}

Test(cli_kill, a_hundred_kills_lose_nothing, .timeout = 300) {
    const char *home = child_home(), *build = getenv("ASSAY_BUILD");
    char exe[512], path[512], sql[256];
    snprintf(exe, sizeof exe, "%s/assay", build ? build : "build");
    snprintf(path, sizeof path, "%s/kill.db", home);
    setenv("XDG_DATA_HOME", home, 1); /* one key for all of them */
    static char out[65536];
    static char acknowledged[KILLS][40];
    int nack = 0;
    struct rng r;
    rng_seed(&r, 11);
    /* how long one takes here and now, so that kills fall before, in and after it */
    int64_t t0 = clock_now_ns();
    cr_assert(eq(int, run_and_kill(exe, path, -1, out, sizeof out), 1));
    uint64_t whole_ns = (uint64_t)(clock_now_ns() - t0);
    for (int i = 0; i < KILLS; i++) {
        if (run_and_kill(exe, path, (int64_t)rng_below(&r, whole_ns * 3 / 2), out, sizeof out)) {
            const char *id = strstr(out, "\"run\"");
            cr_assert(ne(ptr, (void *)id, NULL));
            id = strchr(strchr(id, ':'), '"') + 1;
            snprintf(acknowledged[nack++], sizeof *acknowledged, "%.36s", id);
        }
    }
    /* the next start works, and closes what was left open */
    const struct child *c;
    char args[700];
    snprintf(args, sizeof args, "run offline-batch --backend null --requests 10 --warmup 0 --db %s --json", path);
    c = assay(args);
    cr_assert(eq(int, c->status, 0), "%s", c->err);
    sqlite3 *db;
    cr_assert(eq(int, sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK));
    for (int i = 0; i < nack; i++) {
        snprintf(sql, sizeof sql, "SELECT count(*) FROM run JOIN run_end USING(run_id) WHERE uuid='%.36s' AND verdict='VALID'",
                 acknowledged[i]);
        cr_assert(eq(i64, scalar(db, sql), 1), "acknowledged run %s is lost", acknowledged[i]);
    }
    cr_assert(eq(i64, scalar(db, "SELECT count(*) FROM run LEFT JOIN run_end USING(run_id) WHERE run_end.run_id IS NULL"), 0));
    /* each run has its run.started entry and exactly one closing entry */
    cr_assert(eq(i64, scalar(db, "SELECT count(*) FROM run"), scalar(db, "SELECT count(*) FROM register_entry WHERE kind='run.started'")));
    cr_assert(eq(i64, scalar(db, "SELECT count(*) FROM run"), scalar(db, "SELECT count(*) FROM register_entry WHERE kind IN ('run.finished','run.aborted')")));
    cr_assert(ge(i64, scalar(db, "SELECT count(*) FROM run"), nack));
    int64_t killed = scalar(db, "SELECT count(*) FROM run_end WHERE verdict='ABORTED'");
    sqlite3_close(db);
    printf("%d of %d runs ended before the kill, %d were closed as aborted\n", nack, KILLS, (int)killed);
    cr_assert(gt(i64, killed, 0), "no kill hit a run: the test proves nothing");
    snprintf(args, sizeof args, "verify --all --db %s", path);
    c = assay(args);
    cr_assert(eq(int, c->status, 0), "%s%s", c->out, c->err);
    child_home_remove();
}
