/* Who executes an open run. A run is taken for dead only when two independent witnesses agree:
 *  - the byte run_id of PATH-lease carries an OFD lock as long as its process lives, and the kernel
 *    drops it at any death; it also works among containers that share the file but not their pids;
 *  - the row of `lease` names process, boot and process start time, in case the lease file was
 *    removed under a living run.
 * A run given up by a closed handle has neither (pid 0). Rows of `lease` exist exactly for open
 * runs, so that looking for them does not grow with the store. */
#include "harness/core/clock.h"
#include "results/store_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void read_boot_id(char out[64]) {
    out[0] = '\0';
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!f)
        return;
    if (!fgets(out, 64, f))
        out[0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    fclose(f);
}

/* Field 22 of /proc/PID/stat: start time in clock ticks since boot; -1 when there is no such
 * process. The name (field 2) may hold spaces and parentheses: count from the last ')'. */
static int64_t process_start(int64_t pid) {
    char path[64], line[1024];
    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return -1;
    size_t n = fread(line, 1, sizeof line - 1, f);
    fclose(f);
    line[n] = '\0';
    char *p = strrchr(line, ')');
    if (p && (p[1] != ' ' || strchr("ZXx", p[2])))
        return -1;
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    return p ? strtoll(p, NULL, 10) : -1;
}

int lease_open(struct store *s, struct err *e) {
    char path[4096];
    int n = snprintf(path, sizeof path, "%s-lease", s->c.path);
    if (n < 0 || (size_t)n >= sizeof path)
        return err_set(e, ASSAY_EUSAGE, "the path '%s' is too long", s->c.path);
    s->lease_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (s->lease_fd < 0)
        return err_errno(e, ASSAY_EENV, errno, "cannot open '%s'", path);
    return 0;
}

/* 0 locked, 1 somebody else holds it, < 0 error */
static int lock_run(struct store *s, int64_t run_id, struct err *e) {
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = run_id, .l_len = 1};
    if (fcntl(s->lease_fd, F_OFD_SETLK, &l) == 0)
        return 0;
    if (errno == EAGAIN || errno == EACCES)
        return 1;
    return err_errno(e, ASSAY_EENV, errno, "cannot lock '%s-lease'", s->c.path);
}

static void unlock_run(struct store *s, int64_t run_id) {
    struct flock l = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = run_id, .l_len = 1};
    fcntl(s->lease_fd, F_OFD_SETLK, &l);
}

int lease_take(struct store *s, int64_t run_id, struct err *e) {
    int rc = lock_run(s, run_id, e);
    if (rc)
        return rc < 0 ? rc
                      : err_set(e, ASSAY_EENV, "run %" PRId64 " of '%s' is held by another process",
                                run_id, s->c.path);
    struct open_lease *l = calloc(1, sizeof *l);
    if (!l) {
        unlock_run(s, run_id);
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    }
    l->run_id = run_id;
    l->next = s->lease;
    s->lease = l;
    char boot[64];
    read_boot_id(boot);
    rc = sql_run(&s->c, e, "INSERT OR REPLACE INTO lease VALUES(?,?,?,?)", "iiti", run_id,
                 (int64_t)getpid(), boot, process_start(getpid()));
    if (rc)
        lease_drop(s, run_id);
    return rc;
}

void lease_drop(struct store *s, int64_t run_id) {
    for (struct open_lease **p = &s->lease; *p; p = &(*p)->next)
        if ((*p)->run_id == run_id) {
            struct open_lease *l = *p;
            *p = l->next;
            free(l);
            unlock_run(s, run_id);
            return;
        }
}

void lease_close(struct store *s) {
    while (s->lease) {
        int64_t id = s->lease->run_id;
        struct err ignored = {0};
        if (sql_run(&s->c, &ignored, "UPDATE lease SET pid=0 WHERE run_id=?", "i", id)) {
            /* the row goes on naming this process: the run is closed after its death */
        }
        lease_drop(s, id);
    }
    if (s->lease_fd >= 0)
        close(s->lease_fd);
    s->lease_fd = -1;
}

/* *dead: neither witness speaks for the run; then its lock is held by s. */
static int is_dead(struct store *s, int64_t run_id, bool *dead, struct err *e) {
    *dead = false;
    int rc = lock_run(s, run_id, e);
    if (rc)
        return rc < 0 ? rc : 0;
    char boot[64];
    read_boot_id(boot);
    sqlite3_stmt *st = NULL;
    bool row = false, alive = false;
    rc = sql_prepare(&s->c,
                     "SELECT pid,process_start FROM lease WHERE run_id=? AND boot_id=? AND pid>0",
                     &st, e);
    if (!rc)
        rc = sql_bind(&s->c, st, e, "it", run_id, boot);
    if (!rc)
        rc = sql_step(&s->c, st, &row, e);
    if (!rc && row && boot[0])
        alive = process_start(sqlite3_column_int64(st, 0)) == sqlite3_column_int64(st, 1);
    sqlite3_finalize(st);
    if (rc || alive)
        unlock_run(s, run_id);
    *dead = !rc && !alive;
    return rc;
}

static int recover_one(struct store *s, int64_t run_id, bool *done, struct err *e) {
    struct conn *c = &s->c;
    char uuid[RUN_UUID] = "";
    int64_t last = 0;
    sqlite3_stmt *st = NULL;
    bool row = false;
    *done = false;
    int rc = sql_begin(c, e);
    if (rc)
        return rc;
    /* it may have ended between our look and this lock */
    rc = sql_prepare(
        c,
        "SELECT uuid, (SELECT max(last_ns)-min(first_ns) FROM chunk k WHERE k.run_id=r.run_id)"
        " FROM run r WHERE run_id=? AND NOT EXISTS(SELECT 1 FROM run_end e WHERE "
        "e.run_id=r.run_id)",
        &st, e);
    if (!rc)
        rc = sql_bind(c, st, e, "i", run_id);
    if (!rc)
        rc = sql_step(c, st, &row, e);
    if (!rc && row) {
        snprintf(uuid, sizeof uuid, "%s", sql_text(st, 0));
        last = sqlite3_column_int64(st, 1);
    }
    sqlite3_finalize(st);
    if (!rc && row)
        rc = run_abort(c, run_id, uuid, "crash-recovered", clock_wall_ns(), last > 0 ? last : 0, e);
    if (!rc)
        rc = sql_run(c, e, "DELETE FROM lease WHERE run_id=?", "i", run_id);
    if (!rc)
        rc = sql_commit(c, e);
    *done = !rc && row;
    sql_rollback(c);
    return rc;
}

int runs_recover(struct store *s, int *n, struct err *e) {
    *n = 0;
    int64_t after = 0;
    for (;;) {
        int64_t id;
        bool found, dead, done = false;
        int rc = sql_get_int(&s->c, e, &id, &found,
                             "SELECT run_id FROM lease WHERE run_id>? ORDER BY run_id LIMIT 1", "i",
                             after);
        if (rc || !found)
            return rc;
        after = id;
        rc = is_dead(s, id, &dead, e);
        if (!rc && dead) {
            rc = recover_one(s, id, &done, e);
            unlock_run(s, id);
        }
        if (rc)
            return rc;
        *n += done;
    }
}
