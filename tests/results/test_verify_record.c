/* scripts/verify-record, the independent verifier: it accepts what the program writes, refuses what
 * somebody changed afterwards, and agrees with the published vectors. Needs python3 with its
 * `cryptography` package; without them these tests skip. */
#include "tests/results/vectors.h"

#include <sqlite3.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/assay-verify-XXXXXX";

static void setup(void) {
    cr_assert(mkdtemp(dir) != NULL);
    setenv("XDG_DATA_HOME", dir, 1);
}
static void teardown(void) {
    char cmd[64];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    cr_assert(zero(int, system(cmd)));
}
TestSuite(results_verify_record, .init = setup, .fini = teardown, .timeout = 300);

static char output[65536];

/* Runs a command in which @ stands for the scratch directory; output keeps both its streams. */
static int shell(const char *command) {
    struct buf cmd;
    buf_init(&cmd, 4096);
    for (; *command; command++)
        if (*command == '@')
            buf_puts(&cmd, dir);
        else
            buf_putc(&cmd, *command);
    buf_puts(&cmd, " 2>&1");
    cr_assert(zero(int, buf_check(&cmd, "command", NULL)));
    FILE *p = popen(cmd.p, "r");
    cr_assert(p != NULL);
    buf_release(&cmd);
    size_t got = fread(output, 1, sizeof output - 1, p);
    output[got] = '\0';
    int status = pclose(p);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool said(const char *text) {
    return strstr(output, text) != NULL;
}

static void need_python(void) {
    if (shell("python3 -c 'import cryptography'"))
        cr_skip_test("no python3 with the package 'cryptography'");
}

/* Three runs in one store: three threads with failures of none, a simulated chip, and a real clock, on
 * which a mark's event comes after the boundary that it states. */
static void make_store(void) {
    static const char *const run[] = {
        "decode-loop --backend null --threads 3 --pattern concurrency:6 --requests 300",
        "chat-serving --backend tpu-sim -o chip=v6e -o chips=8 --requests 30 --osl 16 "
        "--set warmup.requests=4",
        "decode-loop --backend null -o clock=real -o ttft=1ms --pattern concurrency:4 --requests 40 "
        "--warmup 8",
    };
    const char *build = getenv("ASSAY_BUILD");
    need_python();
    for (size_t i = 0; i < sizeof run / sizeof run[0]; i++) {
        char cmd[512];
        snprintf(cmd, sizeof cmd, "%s/assay run %s --quiet --db @/a.db", build ? build : "build",
                 run[i]);
        cr_assert(zero(int, shell(cmd)), "%s", output);
    }
}

/* On a real clock a boundary and the event that tells it differ: figures count from the boundary. */
Test(results_verify_record, agrees_on_runs_of_a_real_clock) {
    static const char *const run[] = {
        "--pattern concurrency:2 --requests 4",
        "--pattern concurrency:4 --requests 30 --warmup 8",
        "--pattern poisson:2000 --requests 40 --warmup 5ms --threads 2",
        "--pattern constant:1000 --requests 400 --duration 60ms",
    };
    const char *build = getenv("ASSAY_BUILD");
    need_python();
    for (size_t i = 0; i < sizeof run / sizeof run[0]; i++) {
        char cmd[512];
        snprintf(cmd, sizeof cmd,
                 "%s/assay run chat-serving --backend null -o clock=real -o ttft=1ms --osl 4 --warmup 0 "
                 "%s --quiet --db @/r.db",
                 build ? build : "build", run[i]);
        cr_assert(zero(int, shell(cmd)), "%s", output);
    }
    cr_assert(zero(int, shell("scripts/verify-record --db @/r.db --all")), "%s", output);
}

/* As somebody with the file and another tool: triggers gone, one statement executed. */
static void tamper(const char *sql) {
    sqlite3 *db;
    sqlite3_stmt *st;
    char path[64], drop[64][128], *why = NULL;
    int n = 0;
    snprintf(path, sizeof path, "%s/b.db", dir);
    cr_assert(zero(int, shell("cp @/a.db @/b.db")));
    cr_assert(sqlite3_open(path, &db) == SQLITE_OK);
    cr_assert(sqlite3_prepare_v2(db, "SELECT name FROM sqlite_schema WHERE type='trigger'", -1, &st,
                                 NULL) == SQLITE_OK);
    while (n < 64 && sqlite3_step(st) == SQLITE_ROW)
        snprintf(drop[n++], sizeof drop[0], "DROP TRIGGER \"%s\"",
                 (const char *)sqlite3_column_text(st, 0));
    sqlite3_finalize(st);
    for (int i = 0; i < n; i++)
        cr_assert(sqlite3_exec(db, drop[i], NULL, NULL, NULL) == SQLITE_OK);
    cr_assert(sqlite3_exec(db, sql, NULL, NULL, &why) == SQLITE_OK, "%s: %s", sql, why);
    cr_assert(gt(int, sqlite3_changes(db), 0), "%s", sql);
    sqlite3_close(db);
}

Test(results_verify_record, accepts_what_the_program_writes) {
    make_store();
    cr_assert(zero(int, shell("scripts/verify-record --db @/a.db")), "%s", output);
    cr_assert(said("figures follow from the log") && said("ok   rows") && said(", 0 failed"), "%s",
              output);
    cr_assert(zero(int, shell("scripts/verify-record --db @/a.db latest "
                              "--key @/assay/keys/runner.pem.pub")),
              "%s", output);
    cr_assert(said("trust                    named sha256:"), "%s", output);
    cr_assert(zero(int, shell("ASSAY_DB=@/a.db scripts/verify-record latest")), "%s", output);
}

Test(results_verify_record, refuses_what_was_changed) {
    static const struct {
        const char *sql, *check;
    } attack[] = {
        {"UPDATE metric SET value=value*1.0000001 WHERE metric_id=(SELECT metric_id FROM "
         "metric_def "
         "WHERE name='e2e_ns' AND stat='max')",
         "FAIL rows"},
        {"UPDATE run_end SET verdict='INVALID' WHERE run_id=1", "FAIL rows"},
        {"UPDATE run SET chips=16 WHERE run_id=2", "FAIL rows"},
        {"UPDATE run SET class='measured' WHERE run_id=2", "FAIL rows"},
        {"UPDATE envelope SET payload=CAST(replace(CAST(payload AS "
         "TEXT),'\"simulated\"','\"measured\"') "
         "AS BLOB) WHERE run_id=2",
         "FAIL payload.digest"},
        {"UPDATE signature SET sig=zeroblob(64)", "FAIL signature"},
        {"DELETE FROM signature", "FAIL signature"},
        {"UPDATE chunk SET data=zeroblob(length(data)) WHERE run_id=2 AND sequence=0",
         "FAIL log.digest"},
        {"DELETE FROM chunk WHERE run_id=2 AND sequence=(SELECT max(sequence) FROM chunk WHERE "
         "run_id=2)",
         "FAIL log.digest"},
        {"UPDATE document SET doc=doc||' '", "FAIL documents"},
        {"UPDATE register_entry SET entry=CAST(replace(CAST(entry AS "
         "TEXT),'run.finished','run.aborted') "
         "AS BLOB) WHERE seq=1",
         "FAIL register.chain"},
        {"DELETE FROM register_entry WHERE seq=3", "FAIL register.entries"},
        {"UPDATE artifact SET sha256=zeroblob(32) WHERE name='rules.json'", "FAIL rows"},
        {"UPDATE verdict SET ok=0 WHERE position=0", "FAIL rows"},
        {"UPDATE campaign SET name='other'||campaign_id", "FAIL register.started"},
    };
    make_store();
    for (size_t i = 0; i < sizeof attack / sizeof attack[0]; i++) {
        tamper(attack[i].sql);
        cr_assert(eq(int, shell("scripts/verify-record --db @/b.db"), 1), "%s\n%s", attack[i].sql,
                  output);
        cr_assert(said(attack[i].check), "%s: expected '%s' in\n%s", attack[i].sql, attack[i].check,
                  output);
    }
}

Test(results_verify_record, other_keys_do_not_count) {
    make_store();
    cr_assert(zero(int, shell("mv @/assay @/away")));
    cr_assert(eq(int, shell("scripts/verify-record --db @/a.db"), 1), "%s", output);
    cr_assert(said("FAIL trust") && said("no key is trusted"), "%s", output);
    cr_assert(
        zero(int, shell("scripts/verify-record --db @/a.db --key @/away/keys/runner.pem.pub")),
        "%s", output);
}

Test(results_verify_record, wrong_use_is_2) {
    need_python();
    unsetenv("ASSAY_DB");
    cr_assert(eq(int, shell("scripts/verify-record"), 2));
    cr_assert(said("/assay/assay.db"), "%s", output);
    cr_assert(eq(int, shell("scripts/verify-record --db @/absent.db"), 2));
    cr_assert(eq(int, shell("scripts/verify-record --db @/absent.db --vectors Makefile"), 2));
    cr_assert(eq(int, shell("scripts/verify-record --all latest"), 2));
    cr_assert(eq(int, shell("scripts/verify-record --db Makefile"), 2));
    cr_assert(said("not a database"), "%s", output);
    cr_assert(eq(int, shell("scripts/verify-record --db Makefile --key Makefile"), 2));
    cr_assert(eq(int, shell("scripts/verify-record --vectors Makefile"), 2));
}

Test(results_verify_record, accepts_the_published_vectors) {
    vectors_get("keys");
    need_python();
    cr_assert(zero(int, shell("scripts/verify-record --vectors " VECTORS_PATH)), "%s", output);
    cr_assert(said("ok   jcs_number_corpus") && said("ok   dsse_negative"), "%s", output);
}
