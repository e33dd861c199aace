/* What a user can get wrong, through the built program: the message names file, place, expectation and
 * finding, the exit code is the contract's, and nothing is written. */
#include "tests/cli/child.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void put_file(const char *name, const char *text, char path[256]) {
    snprintf(path, 256, "%s/%s", child_home(), name);
    FILE *f = fopen(path, "w");
    CHECK(f != NULL);
    fputs(text, f);
    fclose(f);
}

static bool store_exists(void) {
    char path[256];
    snprintf(path, sizeof path, "%s/assay/assay.db", child_home());
    return access(path, F_OK) == 0;
}

struct bad {
    const char *args;
    int status;
    const char *says; /* a part of stderr */
};

static void check(const struct bad *b) {
    char args[1024];
    const char *at = strchr(b->args, '@'); /* stands for the home folder */
    snprintf(args, sizeof args, "%.*s%s%s", at ? (int)(at - b->args) : (int)strlen(b->args), b->args,
             at ? child_home() : "", at ? at + 1 : "");
    const struct child *c = assay(args);
    CHECK(c->status == b->status, "assay %s: exit %d, expected %d\n%s", args, c->status, b->status, c->err);
    CHECK(strstr(c->err, b->says), "assay %s: expected '%s' in:\n%s", args, b->says, c->err);
    CHECK(!store_exists(), "assay %s left a store behind", args);
}

#define HEAD "{\"name\":\"w\",\"version\":\"1\",\"kind\":\"serving\","

Test(cli_bad_input, workloads_traces_and_options_leave_nothing) {
    static const struct {
        const char *name, *text;
    } files[] = {
        {"syntax.json", "{\n  \"name\": \"w\",\n  \"kind\" \"serving\"\n}"},
        {"unknown.json", HEAD "\"isl\":10,\"osl\":5,\"requests\":3,\"patern\":\"offline\"}"},
        {"type.json", HEAD "\"isl\":10,\"osl\":\"five\",\"requests\":3,\"pattern\":\"offline\"}"},
        {"range.json", HEAD "\"isl\":10,\"osl\":5,\"requests\":-3,\"pattern\":\"offline\"}"},
        {"missing.json", "{\"name\":\"w\",\"version\":\"1\",\"isl\":10}"},
        {"pattern.json", HEAD "\"isl\":10,\"osl\":5,\"requests\":3,\"pattern\":\"poisson:fast\"}"},
        {"trace.json", HEAD "\"pattern\":\"trace\",\"trace\":{\"path\":\"cut.jsonl\",\"format\":\"mooncake\"}}"},
        {"device.json", HEAD "\"pattern\":\"trace\",\"trace\":{\"path\":\"/dev/zero\",\"format\":\"mooncake\"}}"},
        {"exact.json", HEAD "\"$note\":9007199254740993,\"isl\":10,\"osl\":5,\"requests\":3,\"pattern\":\"offline\"}"},
        {"slow.json", HEAD "\"isl\":10,\"osl\":5,\"requests\":3,\"pattern\":\"poisson:1e-300\"}"},
        {"escape.json", "{\"name\":\"\\u001b[2J\",\"kind\":\"serving\"}"},
        {"deep.json", HEAD "\"$note\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
                           "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]],"
                           "\"isl\":10,\"osl\":5,\"requests\":3,\"pattern\":\"offline\"}"},
        {"cut.jsonl", "{\"timestamp\":0,\"input_length\":100,\"output_length\":5,\"hash_ids\":[1]}\n"
                      "{\"timestamp\":1000,\"input_length\":100,\"outp"},
        {"rules.json", "{\"name\":\"r\",\"version\":\"1\",\"rules\":[{\"id\":\"x\",\"kind\":\"no_such_kind\"}]}"},
        {"chip.json", "{\"name\":\"mine\",\"parameters\":{\"bf16_tflops\":{\"value\":\"fast\"}}}"},
        {"system.json", "{\"name\":\"s\",\"chips\":0}"},
    };
    static const struct bad bad[] = {
        {"run @/syntax.json --backend null", 2, "syntax.json:3:"},
        {"run @/unknown.json --backend null", 2, "did you mean 'pattern'"},
        {"run @/type.json --backend null", 2, "/osl"},
        {"run @/range.json --backend null", 2, "/requests"},
        {"run @/missing.json --backend null", 2, "/kind"},
        {"run @/pattern.json --backend null", 2, "poisson"},
        {"run @/trace.json --backend null", 2, "cut.jsonl:2:"},
        {"run @/device.json --backend null", 2, "/trace/path"},
        {"run @/exact.json --backend null", 2, "exact.json: at /$note"},
        {"run @/deep.json --backend null", 2, "deep.json: at /$note"},
        {"run @/slow.json --backend null", 2, "/pattern"},
        {"run @/escape.json --backend null", 2, "?[2J"},
        {"run @/none.json --backend null", 2, "none.json"},
        {"run chat-servin --backend null", 2, "chat-servin"},
        {"run offline-batch --backend null --rules @/rules.json", 2, "no_such_kind"},
        {"run offline-batch --backend null --system @/system.json", 2, "/chips"},
        {"run offline-batch --backend tpu-sim -o chip=@/chip.json", 2, "bf16_tflops"},
        {"run offline-batch --backend tpu-sim -o chip=v99", 2, "v99"},
        {"run offline-batch --backend tpu-sim -o chips=0", 2, "chips"},
        {"run offline-batch --backend tpu-sim -o chip=v5e --set model=llama3.1-405b", 2, "short"},
        {"run offline-batch --backend nul", 2, "did you mean 'null'"},
        {"run offline-batch --backend null -o tfft=1ms", 2, "did you mean 'ttft'"},
        {"run offline-batch --backend null -o ttft=soon", 2, "duration"},
        {"run offline-batch --backend null --threads 0", 2, "threads"},
        {"run offline-batch --backend null --set isl=0", 2, "isl"},
        {"run offline-batch --backend null --set kind.x=1", 2, "kind"},
        {"run offline-batch --backend http", 2, "url"},
        {"run offline-batch --backend http -o url=gopher://x", 2, "url"},
        {"run offline-batch --backend http -o url=http://127.0.0.1:1", 3, "127.0.0.1"},
        {"run training-step --backend http -o url=http://127.0.0.1:1", 2, "training"},
        {"run offline-batch --backend null --key @/absent.pem", 3, "absent.pem"},
        {"run offline-batch --backend null --nonsense", 2, "nonsense"},
        {"verify", 3, "assay.db"},
        {"show latest", 3, "assay.db"},
        {"query best-throughput", 3, "assay.db"},
    };
    char path[256];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        put_file(files[i].name, files[i].text, path);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check(&bad[i]);
    child_home_remove();
}

/* An endpoint that accepts and closes at once: every request would fail; it must not be believed. */
Test(cli_bad_input, an_endpoint_that_hangs_up_is_an_environment_error) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    CHECK(bind(s, (struct sockaddr *)&a, sizeof a) == 0 && listen(s, 8) == 0);
    CHECK(getsockname(s, (struct sockaddr *)&a, &n) == 0);
    pid_t pid = fork();
    if (!pid)
        for (;;)
            close(accept(s, NULL, NULL));
    char args[256];
    snprintf(args, sizeof args, "run offline-batch --backend http -o url=http://127.0.0.1:%d --requests 3",
             ntohs(a.sin_port));
    const struct child *c = assay(args);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(s);
    CHECK(c->status == 3, "exit %d\n%s%s", c->status, c->out, c->err);
    child_home_remove();
}

Test(cli_bad_input, a_run_in_which_every_request_failed_is_never_valid) {
    const struct child *c = assay("run offline-batch --backend null -o fail_every=1 --requests 20 --json");
    CHECK(c->status == 1, "exit %d\n%s", c->status, c->err);
    json_t *j = child_object(c);
    CHECK(json_is_false(json_object_get(j, "valid")));
    CHECK(json_object_get(json_object_get(j, "metrics"), "ttft_ns") == NULL);
    json_decref(j);
    child_home_remove();
}

/* Runs `assay ARGS` through a shell that first limits or drops something. */
static int limited(const char *prefix, const char *args, char *err, size_t n) {
    const char *build = getenv("ASSAY_BUILD");
    char cmd[2048];
    snprintf(cmd, sizeof cmd, "%s XDG_DATA_HOME=%s %s/assay %s 2>&1 >/dev/null", prefix, child_home(),
             build ? build : "build", args);
    FILE *p = popen(cmd, "r");
    CHECK(p != NULL);
    size_t got = fread(err, 1, n - 1, p);
    err[got] = '\0';
    int status = pclose(p);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Test(cli_bad_input, a_full_disk_ends_the_run_and_keeps_what_was_there) {
    CHECK(assay("run offline-batch --backend null --requests 50")->status == 0);
    char err[4096];
    /* no file may grow past 2 MB: the log of 3,000,000 events needs more */
    int rc = limited("ulimit -f 2000;", "run offline-batch --backend null --requests 1000000 "
                     "--pattern poisson:1000", err, sizeof err);
    CHECK(rc == 3, "exit %d: %s", rc, err);
    CHECK(strstr(err, "assay.db"), "%s", err);
    const struct child *c = assay("run offline-batch --backend null --requests 50");
    CHECK(c->status == 0, "%s", c->err);
    c = assay("verify --all");
    CHECK(c->status == 0, "%s%s", c->out, c->err);
    child_home_remove();
}

Test(cli_bad_input, a_read_only_folder_is_said_and_reading_still_works) {
    CHECK(assay("run offline-batch --backend null --requests 50")->status == 0);
    char err[4096], cmd[512];
    /* root may write anywhere, so the program runs as nobody */
    snprintf(cmd, sizeof cmd, "chmod -R a+rX %s && chmod -R a-w %s/assay", child_home(), child_home());
    CHECK(system(cmd) == 0);
    const char *as = geteuid() == 0 ? "setpriv --reuid=65534 --regid=65534 --clear-groups env" : "env";
    int rc = limited(as, "run offline-batch --backend null --requests 50", err, sizeof err);
    CHECK(rc == 3, "exit %d: %s", rc, err);
    rc = limited(as, "list", err, sizeof err);
    CHECK(rc == 0, "exit %d: %s", rc, err);
    snprintf(cmd, sizeof cmd, "chmod -R u+w %s", child_home());
    CHECK(system(cmd) == 0);
    child_home_remove();
}

/* ---- tampering ---- */

static void sql(const char *text) {
    char path[256], *msg = NULL;
    sqlite3 *db;
    snprintf(path, sizeof path, "%s/assay/assay.db", child_home());
    CHECK(sqlite3_open(path, &db) == SQLITE_OK);
    /* whoever tampers drops the guards first */
    sqlite3_stmt *q;
    char drop[65536] = "";
    CHECK(sqlite3_prepare_v2(db, "SELECT name FROM sqlite_schema WHERE type='trigger'", -1, &q, NULL) == SQLITE_OK);
    while (sqlite3_step(q) == SQLITE_ROW) {
        size_t n = strlen(drop);
        snprintf(drop + n, sizeof drop - n, "DROP TRIGGER \"%s\";", (const char *)sqlite3_column_text(q, 0));
    }
    sqlite3_finalize(q);
    CHECK(sqlite3_exec(db, drop, NULL, NULL, &msg) == SQLITE_OK, "%s", msg);
    CHECK(sqlite3_exec(db, text, NULL, NULL, &msg) == SQLITE_OK, "%s", msg);
    sqlite3_close(db);
}

Test(cli_bad_input, verify_sees_a_changed_metric_log_record_register_or_document) {
    static const char *const tampers[] = {
        "UPDATE metric SET value=value*2+1 WHERE metric_id=(SELECT min(metric_id) FROM metric)",
        "UPDATE chunk SET data=CAST(substr(data,1,length(data)-1)||x'77' AS BLOB)",
        "DELETE FROM chunk WHERE sequence=0",
        "UPDATE envelope SET payload=CAST(replace(CAST(payload AS TEXT),'VALID','VALIE') AS BLOB)",
        "UPDATE signature SET sig=zeroblob(64)",
        "UPDATE register_entry SET entry=CAST(replace(CAST(entry AS TEXT),'\"seed\":\"1\"','\"seed\":\"2\"') AS BLOB)",
        "DELETE FROM register_entry WHERE seq=1",
        "UPDATE document SET doc=replace(doc,'offline-batch','offline-botch')",
        "UPDATE run SET seed='7'",
        "UPDATE run_end SET verdict='INVALID'",
        "UPDATE key SET public=zeroblob(32)",
    };
    for (size_t i = 0; i < sizeof tampers / sizeof *tampers; i++) {
        CHECK(assay("run offline-batch --backend null --requests 50")->status == 0);
        CHECK(assay("verify --all")->status == 0);
        sql(tampers[i]);
        const struct child *c = assay("verify --all");
        CHECK(c->status == 1, "not seen: %s (exit %d)\n%s%s", tampers[i], c->status, c->out, c->err);
        child_home_remove();
    }
}

Test(cli_bad_input, a_changed_key_file_is_refused) {
    CHECK(assay("run offline-batch --backend null --requests 5")->status == 0);
    char path[256];
    snprintf(path, sizeof path, "%s/assay/keys/runner.pem", child_home());
    CHECK(chmod(path, 0644) == 0);
    const struct child *c = assay("run offline-batch --backend null --requests 5");
    CHECK(c->status == 3, "exit %d", c->status);
    CHECK(strstr(c->err, "runner.pem"), "%s", c->err);
    CHECK(chmod(path, 0600) == 0);
    FILE *f = fopen(path, "w");
    fputs("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", f);
    fclose(f);
    c = assay("run offline-batch --backend null --requests 5");
    CHECK(c->status == 3 || c->status == 2, "exit %d", c->status);
    CHECK(strstr(c->err, "runner.pem"), "%s", c->err);
    child_home_remove();
}

Test(cli_bad_input, a_file_that_is_no_store_is_left_alone) {
    char path[256], args[512], text[64] = "";
    put_file("notes.txt", "these are my notes, not a database of anything at all\n", path);
    snprintf(args, sizeof args, "run offline-batch --backend null --requests 5 --db %s", path);
    const struct child *c = assay(args);
    CHECK(c->status == 2, "exit %d: %s", c->status, c->err);
    FILE *f = fopen(path, "r");
    CHECK(fgets(text, sizeof text, f) && strncmp(text, "these are my notes", 18) == 0);
    fclose(f);
    child_home_remove();
}
