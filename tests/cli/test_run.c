/* The spine through the built program: run, list, show, verify, query, sweep over a store of the
 * test's own, with the null backend (exact times) and the simulator. */
#include "tests/cli/child.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(cli_run, .fini = child_home_remove);

/* 100 requests, four at a time, 8 tokens each. */
static const char *tiny(void) {
    static char path[256];
    snprintf(path, sizeof path, "%s/tiny.json", child_home());
    FILE *f = fopen(path, "w");
    fputs("{\"name\":\"tiny\",\"version\":\"1\",\"kind\":\"serving\",\"model\":\"llama3.1-8b\","
          "\"pattern\":\"concurrency:4\",\"requests\":100,\"isl\":16,\"osl\":8}",
          f);
    fclose(f);
    return path;
}

static const struct child *with_tiny(const char *verb, const char *rest) {
    char args[1024];
    snprintf(args, sizeof args, "%s %s %s", verb, tiny(), rest);
    return assay(args);
}

static double number_in(const json_t *v, const char *object, const char *member) {
    const json_t *x = json_object_get(json_object_get(v, object), member);
    CHECK(json_is_number(x), "%s.%s is not there", object, member);
    return json_number_value(x);
}

static int has_store(void) {
    char path[300];
    struct stat st;
    snprintf(path, sizeof path, "%s/assay/assay.db", child_home());
    return !stat(path, &st);
}

/* With TTFT 10 ms and TPOT 1 ms in virtual time every figure is known: E2E 17 ms, four streams, so 100
 * requests take 25 * 17 ms = 425 ms: 235.294… requests and 1882.35… tokens a second. */
Test(cli_run, figures_of_exact_times) {
    const struct child *c =
        with_tiny("run", "--backend null -o ttft=10ms -o tpot=1ms -o stream=on --json");
    CHECK(c->status == 0 || c->status == 1, "%d: %s", c->status, c->err);
    json_t *v = child_object(c);
    cr_assert(eq(int, json_is_true(json_object_get(v, "valid")), c->status == 0));
    json_t *m = json_object_get(v, "metrics");
    cr_assert(eq(i64, (int64_t)number_in(m, "requests", "issued"), 100));
    cr_assert(eq(i64, (int64_t)number_in(m, "requests", "completed"), 100));
    cr_assert(eq(i64, (int64_t)number_in(m, "requests", "failed"), 0));
    cr_assert(eq(i64, (int64_t)number_in(m, "ttft_ns", "p50"), 10000000));
    cr_assert(eq(i64, (int64_t)number_in(m, "tpot_ns", "p50"), 1000000));
    cr_assert(eq(i64, (int64_t)number_in(m, "e2e_ns", "p90"), 17000000));
    cr_assert(eq(i64, json_integer_value(json_object_get(m, "duration_ns")), 425000000));
    cr_assert(ieee_ulp_eq(dbl, json_number_value(json_object_get(m, "requests_per_s")),
                          100 / 0.425, 4));
    cr_assert(ieee_ulp_eq(dbl, json_number_value(json_object_get(m, "output_tokens_per_s")),
                          800 / 0.425, 4));
    cr_assert(eq(str, (char *)json_string_value(json_object_get(json_object_get(v, "backend"), "class")),
                 "none"));
    cr_assert(eq(sz, strlen(json_string_value(json_object_get(v, "run"))), 36));
    cr_assert(eq(sz, strlen(json_string_value(json_object_get(v, "record_sha256"))), 64));
    CHECK(json_array_size(json_object_get(v, "verdicts")) > 0);
    json_decref(v);
}

Test(cli_run, record_is_listed_shown_and_verified) {
    const struct child *c = with_tiny("run", "--backend tpu-sim -o chip=v6e --json");
    CHECK(c->status == 0 || c->status == 1, "%d: %s", c->status, c->err);
    json_t *run = child_object(c);
    char id[40], digest[80], args[400], verdict[16];
    snprintf(id, sizeof id, "%s", json_string_value(json_object_get(run, "run")));
    snprintf(digest, sizeof digest, "%s", json_string_value(json_object_get(run, "record_sha256")));
    snprintf(verdict, sizeof verdict, "%s",
             json_is_true(json_object_get(run, "valid")) ? "VALID" : "INVALID");

    c = assay("list --json");
    cr_assert(eq(int, c->status, 0), "%s", c->err);
    json_t *list = child_object(c), *first = json_array_get(json_object_get(list, "runs"), 0);
    cr_assert(eq(sz, json_array_size(json_object_get(list, "runs")), 1));
    cr_assert(eq(str, (char *)json_string_value(json_object_get(first, "run")), id));
    cr_assert(eq(str, (char *)json_string_value(json_object_get(first, "verdict")), verdict));
    cr_assert(eq(str, (char *)json_string_value(json_object_get(first, "class")), "simulated"));
    cr_assert(eq(str, (char *)json_string_value(json_object_get(first, "record_sha256")), digest));
    json_decref(list);

    snprintf(args, sizeof args, "show %.13s --json", id); /* a beginning is enough */
    c = assay(args);
    cr_assert(eq(int, c->status, 0), "%s", c->err);
    json_t *shown = child_object(c);
    cr_assert(eq(str, (char *)json_string_value(json_object_get(shown, "run")), id));
    cr_assert(eq(str, (char *)json_string_value(json_object_get(shown, "record_sha256")), digest));
    cr_assert(eq(sz, json_array_size(json_object_get(shown, "signatures")), 1));
    json_decref(shown);
    c = assay("show latest");
    cr_assert(eq(int, c->status, 0), "%s", c->err);
    CHECK(!strncmp(c->out, "SIMULATED  run ", 15), "%.80s", c->out);

    snprintf(args, sizeof args, "verify %s --json", id);
    c = assay(args);
    cr_assert(eq(int, c->status, 0), "%s%s", c->out, c->err);
    json_t *report = child_object(c);
    cr_assert(eq(str, (char *)json_string_value(json_object_get(report, "outcome")), "OK"));
    cr_assert(eq(str, (char *)json_string_value(json_object_get(report, "trust")), "local"));
    json_decref(report);
    c = assay("verify --all --json");
    cr_assert(eq(int, c->status, 0), "%s%s", c->out, c->err);
    json_decref(child_object(c));
    json_decref(run);
}

Test(cli_run, envelope_alone_and_revoked_key) {
    const struct child *c = with_tiny("run", "--backend null --quiet");
    CHECK(c->status == 0 || c->status == 1, "%s", c->err);
    char path[300], args[400];
    c = assay("show latest --envelope");
    cr_assert(eq(int, c->status, 0), "%s", c->err);
    snprintf(path, sizeof path, "%s/record.json", child_home());
    FILE *f = fopen(path, "w");
    fputs(c->out, f);
    fclose(f);
    snprintf(args, sizeof args, "verify %s --json", path);
    c = assay(args);
    cr_assert(eq(int, c->status, 1)); /* the log is not there */
    json_t *v = child_object(c);
    cr_assert(eq(str, (char *)json_string_value(json_object_get(v, "outcome")), "INCOMPLETE"));
    json_decref(v);
    /* one changed byte of the payload */
    char *text = strstr(c->out, "payload");
    (void)text;
    f = fopen(path, "r+");
    fseek(f, 200, SEEK_SET);
    int byte = fgetc(f);
    fseek(f, 200, SEEK_SET);
    fputc(byte == 'A' ? 'B' : 'A', f);
    fclose(f);
    c = assay(args);
    CHECK(c->status == 1 || c->status == 2, "%d", c->status);
    CHECK(!strstr(c->out, "\"OK\""), "%s", c->out);

    cr_assert(eq(int, assay("verify latest")->status, 0));
    cr_assert(eq(int, assay("key revoke runner")->status, 0));
    c = assay("verify latest --json");
    cr_assert(eq(int, c->status, 1));
    v = child_object(c);
    cr_assert(eq(str, (char *)json_string_value(json_object_get(v, "outcome")), "REVOKED"));
    json_decref(v);
}

Test(cli_run, same_seed_same_figures) {
    char first[65536];
    for (int i = 0; i < 2; i++) {
        const struct child *c = with_tiny("run", "--backend tpu-sim -o chip=v5e -o chips=4 "
                                                 "--pattern poisson:20 --seed 7 --json");
        CHECK(c->status == 0 || c->status == 1, "%s", c->err);
        json_t *v = child_object(c);
        char *m = json_dumps(json_object_get(v, "metrics"), JSON_SORT_KEYS | JSON_COMPACT);
        if (i == 0)
            snprintf(first, sizeof first, "%s", m);
        else
            cr_assert(eq(str, m, first));
        free(m);
        json_decref(v);
    }
}

Test(cli_run, log_is_dumped_in_order) {
    const struct child *c = with_tiny("run", "--backend null -o ttft=10ms -o tpot=1ms --quiet");
    CHECK(c->status == 0 || c->status == 1, "%s", c->err);
    c = assay("show latest --log");
    cr_assert(eq(int, c->status, 0), "%s", c->err);
    CHECK(!strncmp(c->out, "time_ns,thread,event,request,a,b\n", 33), "%.80s", c->out);
    int64_t before = 0;
    int issues = 0, done = 0;
    for (char *line = strchr(c->out, '\n') + 1; *line; line = strchr(line, '\n') + 1) {
        int64_t t = strtoll(line, NULL, 10);
        CHECK(t >= before, "time goes back: %.60s", line);
        before = t;
        char *kind = strchr(strchr(line, ',') + 1, ',') + 1;
        issues += !strncmp(kind, "issue,", 6);
        done += !strncmp(kind, "done,", 5);
    }
    cr_assert(eq(int, issues, 100));
    cr_assert(eq(int, done, 100));
    c = assay("show latest --log --limit 3 --json");
    cr_assert(eq(int, c->status, 0));
    json_t *v = child_object(c);
    cr_assert(eq(sz, json_array_size(json_object_get(v, "events")), 3));
    json_decref(v);
}

/* The failed requests decide: every second one may be a valid or invalid run, all of them never. */
Test(cli_run, a_run_in_which_all_failed_is_not_0) {
    const struct child *c = with_tiny("run", "--backend null -o fail_every=1 --json");
    cr_assert(eq(int, c->status, 1), "%s", c->err);
    json_t *v = child_object(c);
    cr_assert(eq(i64, (int64_t)number_in(json_object_get(v, "metrics"), "requests", "failed"), 100));
    CHECK(!json_object_get(json_object_get(v, "metrics"), "ttft_ns"), "a latency of nothing");
    json_decref(v);
}

Test(cli_run, an_interrupted_run_is_4_and_stored) {
    char path[512];
    const char *build = getenv("ASSAY_BUILD"), *home = child_home(), *load = tiny();
    snprintf(path, sizeof path, "%s/assay", build && *build ? build : "build");
    pid_t pid = fork();
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* nothing outlives a failed test */
        setenv("XDG_DATA_HOME", home, 1);
        unsetenv("ASSAY_DB");
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 1);
        dup2(null, 2);
        execl(path, path, "run", load, "--backend", "null", "-o", "clock=real", "-o", "ttft=50ms",
              "--requests", "100000", NULL);
        _exit(127);
    }
    /* until the run is in the register: the store is there and lists it as open */
    for (int i = 0; i < 600; i++) {
        usleep(50000);
        const struct child *c = has_store() ? assay("list") : NULL;
        if (c && strstr(c->out, "OPEN"))
            break;
    }
    usleep(300000);
    kill(pid, SIGINT);
    int status;
    waitpid(pid, &status, 0);
    CHECK(WIFEXITED(status));
    cr_assert(eq(int, WEXITSTATUS(status), 4));
    const struct child *c = assay("list --json");
    cr_assert(eq(int, c->status, 0), "%s", c->err);
    json_t *v = child_object(c), *run = json_array_get(json_object_get(v, "runs"), 0);
    cr_assert(eq(sz, json_array_size(json_object_get(v, "runs")), 1));
    CHECK(strcmp(json_string_value(json_object_get(run, "verdict")), "VALID"), "a partial run is valid");
    CHECK(json_integer_value(json_object_get(run, "completed")) > 0);
    json_decref(v);
}

static char *system_of(const char *rest) {
    char options[256];
    static char name[256];
    snprintf(options, sizeof options, "--backend tpu-sim -o chip=v6e %s --json", rest);
    const struct child *c = with_tiny("run", options);
    cr_assert(eq(int, c->status, 0), "%s", c->err);
    json_t *v = child_object(c);
    snprintf(name, sizeof name, "%s",
             json_string_value(json_object_get(json_object_get(v, "campaign"), "name")));
    json_decref(v);
    char *from = strchr(name, '/') + 1;
    *strchr(from, '@') = '\0';
    return from;
}

/* What a chip would do with other figures, or an engine with other settings, is no attempt of the
 * campaign of the chip itself. */
Test(cli_run, another_setting_is_another_system) {
    cr_assert(eq(str, system_of(""), "v6e-1 (tpu-sim)"));
    cr_assert(eq(str, system_of("-o weights=bf16"), "v6e-1 (tpu-sim)"));
    cr_assert(eq(str, system_of("-o weights=int8 -o prefix_cache"),
                 "v6e-1 (tpu-sim, weights=int8, prefix_cache=true)"));
    cr_assert(eq(str, system_of("-o chip.hbm_gbps=3276"), "v6e+hbm_gbps=3276-1 (tpu-sim)"));
}

Test(cli_run, dry_run_touches_nothing) {
    const struct child *c = with_tiny("run", "--backend null --dry-run --json --isl 99 --set osl=7");
    cr_assert(eq(int, c->status, 0), "%s", c->err);
    json_t *v = child_object(c);
    cr_assert(eq(i64, (int64_t)number_in(v, "plan", "requests_or_steps"), 100));
    cr_assert(ieee_ulp_eq(dbl, number_in(v, "plan", "mean_input_tokens"), 99, 4));
    cr_assert(ieee_ulp_eq(dbl, number_in(v, "plan", "mean_output_tokens"), 7, 4));
    json_decref(v);
    cr_assert(eq(int, has_store(), 0));
}

Test(cli_run, sweep_prints_the_frontier_and_goes_on_past_a_failure) {
    const struct child *c =
        with_tiny("sweep", "--backend tpu-sim -o chip=v6e --concurrency 1,4,16 --json");
    CHECK(c->status == 0 || c->status == 1, "%d %s", c->status, c->err);
    json_t *v = child_object(c), *points = json_object_get(v, "points");
    cr_assert(eq(sz, json_array_size(points), 3));
    static const int64_t at[] = {1, 4, 16};
    double last = 0;
    for (size_t i = 0; i < 3; i++) {
        json_t *p = json_array_get(points, i);
        double rate = json_number_value(json_object_get(p, "output_tokens_per_s"));
        CHECK(rate > last, "more in flight gives more tokens a second");
        last = rate;
        cr_assert(eq(i64, json_integer_value(json_object_get(json_object_get(p, "over"), "concurrency")),
                     at[i]));
    }
    CHECK(json_is_array(json_object_get(v, "frontier")));
    json_decref(v);
    /* four chips of the type do not exist as a topology of 3: that point fails, the others stay */
    c = with_tiny("sweep", "--backend tpu-sim -o chip=v6e --over o.chip=v6e,nosuch,v5p --json");
    cr_assert(eq(int, c->status, 2), "%s", c->err);
    v = child_object(c);
    points = json_object_get(v, "points");
    cr_assert(eq(sz, json_array_size(points), 3));
    CHECK(json_object_get(json_array_get(points, 1), "error"));
    CHECK(json_object_get(json_array_get(points, 0), "run"));
    CHECK(json_object_get(json_array_get(points, 2), "run"));
    json_decref(v);
    c = assay("list --json");
    v = child_object(c);
    cr_assert(eq(sz, json_array_size(json_object_get(v, "runs")), 5));
    json_decref(v);
}

Test(cli_run, queries_print_one_object_or_a_table) {
    const struct child *c = with_tiny("run", "--backend tpu-sim -o chip=v6e --quiet");
    CHECK(c->status == 0 || c->status == 1, "%s", c->err);
    c = assay("query --list --json");
    cr_assert(eq(int, c->status, 0));
    json_t *v = child_object(c), *q;
    size_t i;
    CHECK(json_array_size(json_object_get(v, "queries")) > 5);
    json_t *names = json_incref(json_object_get(v, "queries"));
    json_array_foreach(names, i, q) {
        char args[300];
        bool needs = false;
        size_t k;
        json_t *p;
        json_array_foreach(json_object_get(q, "parameters"), k, p)
            needs |= json_is_true(json_object_get(p, "required"));
        snprintf(args, sizeof args, "query %s%s --json", json_string_value(json_object_get(q, "name")),
                 needs ? " rate=10" : "");
        c = assay(args);
        cr_assert(eq(int, c->status, 0), "%s: %s", args, c->err);
        json_decref(child_object(c));
    }
    json_decref(names);
    json_decref(v);
    c = assay("query --sql 'SELECT verdict, chip FROM v_run' --csv");
    cr_assert(eq(int, c->status, 0), "%s", c->err);
    CHECK(strstr(c->out, "ALID,v6e"), "%s", c->out);
    cr_assert(eq(int, assay("query --sql 'DELETE FROM run'")->status, 2));
    cr_assert(eq(int, assay("query --schema")->status, 0));
}

Test(cli_run, wrong_use_stores_nothing) {
    static const struct {
        const char *verb, *rest, *says;
        int status;
    } uses[] = {
        {"run", "", "option '--backend BACKEND' is required", 2},
        {"run", "--backend nul", "did you mean 'null'?", 2},
        {"run", "--backend null -o ttf=1ms", "did you mean 'ttft'?", 2},
        {"run", "--backend null -o ttft", "needs a value", 2},
        {"run", "--backend null --isl many", "--isl: expected an integer", 2},
        {"run", "--backend null --pattern sometimes", "sometimes", 2},
        {"run", "--backend null --set nothing.like=it", "nothing", 2},
        {"run", "--backend null --set isl", "expected PATH=VALUE", 2},
        {"run", "--backend null --rules no-such-pack", "no-such-pack", 2},
        {"run", "--backend null --threads 0", "--threads: expected an integer in 1..256", 2},
        {"run", "--backend null --key /nonexistent.pem", "/nonexistent.pem", 3},
        {"run", "--backend null --system /nonexistent.json", "/nonexistent.json", 2},
        {"run", "--backend null --threds 2", "did you mean '--threads'?", 2},
        {"run", "--backend null more", "unexpected argument", 2},
        {"sweep", "--backend null", "expected --concurrency, --rate or --over", 2},
        {"sweep", "--backend null --concurrency 1,x", "concurrency:x", 2},
        {"sweep", "--backend null --concurrency 1,1", "there twice", 2},
        {"sweep", "--backend null --concurrency 1 --rate 2", "both set the pattern", 2},
        {"sweep", "--backend null --over isl=1 --over isl=2", "swept twice", 2},
    };
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        const struct child *c = with_tiny(uses[i].verb, uses[i].rest);
        cr_assert(eq(int, c->status, uses[i].status), "%s %s: %d %s", uses[i].verb, uses[i].rest,
                  c->status, c->err);
        CHECK(strstr(c->err, uses[i].says), "%s %s: expected '%s', found '%s'", uses[i].verb,
              uses[i].rest, uses[i].says, c->err);
        cr_assert(eq(str, (char *)c->out, ""));
    }
    cr_assert(eq(int, has_store(), 0));
}

/* What is not the user's mistake is 3: nothing listens there, nothing can be written there. */
Test(cli_run, the_environment_is_3) {
    static const struct {
        const char *verb, *rest, *says;
    } uses[] = {
        {"run", "--backend http -o url=http://127.0.0.1:1", "cannot reach"},
        {"run", "--backend null --db /proc/nowhere/x.db", "/proc/nowhere"},
        {"sweep", "--backend http -o url=http://127.0.0.1:1 --concurrency 1,2", "2 of 2 points failed"},
    };
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        const struct child *c = with_tiny(uses[i].verb, uses[i].rest);
        cr_assert(eq(int, c->status, 3), "%s: %s", uses[i].rest, c->err);
        CHECK(strstr(c->err, uses[i].says), "%s", c->err);
    }
    cr_assert(eq(int, assay("list --db /nonexistent/x.db")->status, 3));
    cr_assert(eq(int, assay("verify latest")->status, 3)); /* there is no store yet */
    char path[300], args[400];
    snprintf(path, sizeof path, "%s/not.db", child_home());
    FILE *f = fopen(path, "w");
    fputs("no database", f);
    fclose(f);
    snprintf(args, sizeof args, "list --db %s", path);
    cr_assert(eq(int, assay(args)->status, 2)); /* there it is a file of another kind */
}

Test(cli_run, wrong_use_of_the_store) {
    static const struct {
        const char *args, *says;
    } uses[] = {
        {"show", "expected RUN"},
        {"show latest --log --envelope", "exclude each other"},
        {"show latest --limit -1", "--limit: expected an integer"},
        {"list x", "unexpected argument 'x'"},
        {"list --limit 0", "--limit: expected an integer"},
        {"verify a b", "unexpected argument 'b'"},
        {"verify --all x", "--all takes no RUN or FILE"},
        {"verify ./no-such-record.json", "no-such-record.json"},
        {"query", "expected one of NAME, --sql, --list and --schema"},
        {"query x --list", "expected one of NAME"},
        {"query --list --csv --json", "exclude each other"},
        {"price", "expected add CHIP USD | list"},
        {"price ad", "did you mean 'add'?"},
        {"price add v6e", "expected CHIP and USD"},
        {"price add v6e 1.2", "'--source TEXT' is required"},
        {"price add v6e much --source x", "expected a number"},
        {"price add v6e 1 --source x --basis guess", "expected list, contract or tco-model"},
        {"price add v6e 1 --source x --from soon", "expected a date"},
    };
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        const struct child *c = assay(uses[i].args);
        cr_assert(eq(int, c->status, 2), "assay %s: %s", uses[i].args, c->err);
        CHECK(strstr(c->err, uses[i].says), "assay %s: %s", uses[i].args, c->err);
        cr_assert(eq(str, (char *)c->out, ""));
    }
}

Test(cli_run, prices_make_the_cheapest_answer) {
    const struct child *c = assay("price add v6e 2.7 --source 'test of the price list' --from 2024-01-01");
    cr_assert(eq(int, c->status, 0), "%s", c->err);
    cr_assert(eq(int, assay("price add v6e 3 --source again --from 2024-01-01")->status, 2));
    c = assay("price list --json");
    cr_assert(eq(int, c->status, 0));
    json_t *v = child_object(c), *row = json_array_get(json_object_get(v, "rows"), 0);
    cr_assert(eq(str, (char *)json_string_value(json_object_get(row, "chip")), "v6e"));
    cr_assert(ieee_ulp_eq(dbl, json_number_value(json_object_get(row, "usd_per_chip_hour")), 2.7, 1));
    json_decref(v);
}

/* TTFT is 10 ms and E2E 17 ms for every request: a limit on the line makes all good, or none. */
Test(cli_run, limits_of_a_sweep_decide_its_goodput) {
    static const struct {
        const char *limit;
        double good;
    } rows[] = {{"ttft=10ms", 1}, {"ttft=9ms", 0}, {"e2e=17ms", 1}, {"e2e=16ms --limit ttft=10ms", 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char rest[256];
        snprintf(rest, sizeof rest,
                 "--backend null -o ttft=10ms -o tpot=1ms --concurrency 4 --json --limit %s",
                 rows[i].limit);
        const struct child *c = with_tiny("sweep", rest);
        cr_assert(eq(int, c->status, 0), "%s", c->err);
        json_t *v = child_object(c), *p = json_array_get(json_object_get(v, "points"), 0);
        double all = json_number_value(json_object_get(p, "requests_per_s"));
        double good = json_number_value(json_object_get(p, "goodput_requests_per_s"));
        CHECK(all > 235 && all < 236 && good == rows[i].good * all, "%s: %g of %g", rows[i].limit, good,
              all);
        json_decref(v);
    }
}

/* Two servers: 20 requests in flight wait 9 services of 17 ms each for theirs. */
Test(cli_run, find_prints_one_object_and_its_exit_code_is_the_answer) {
    const struct child *c = with_tiny("sweep", "--backend null -o ttft=10ms -o tpot=1ms -o servers=2 "
                                               "--requests 2000 --find --limit e2e_p90=170ms --json");
    cr_assert(eq(int, c->status, 0), "%s", c->err);
    json_t *v = child_object(c);
    cr_assert(eq(dbl, json_number_value(json_object_get(v, "highest")), 20));
    cr_assert(eq(str, (char *)json_string_value(json_object_get(v, "class")), "none"));
    CHECK(json_array_size(json_object_get(v, "probes")) >= 5);
    json_decref(v);
    c = with_tiny("sweep", "--backend null -o ttft=10ms --requests 500 --find --limit e2e_p50=1ms");
    cr_assert(eq(int, c->status, 1), "%s", c->err);
    static const char *const wrong[] = {
        "--find", "--find --limit ttft=1s", "--find --limit itl_p9=1s", "--limit ttft_p9=1s",
        "--find --limit ttft_p9=1s --points 4", "--find --limit goodput=0.9",
        "--find --limit ttft_p9=1s --concurrency 1,2", "--find --limit ttft_p9=1s --concurrency 2..1",
        "--find --limit ttft_p9=1s --rate 0..1", "--find --limit ttft_p9=1s --precision 0",
        "--find --limit ttft_p9=1s --pattern offline", "--points 4", "--points 4 --rate 1,2",
        "--find --limit ttft_p9=1s --limit ttft_p9=2s",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char rest[256];
        snprintf(rest, sizeof rest, "--backend null %s", wrong[i]);
        c = with_tiny("sweep", rest);
        cr_assert(eq(int, c->status, 2), "%s: %d %s", wrong[i], c->status, c->err);
    }
}

Test(cli_run, small_courtesies_of_the_planner_s_verbs) {
    const struct child *c = assay("query chepest");
    cr_assert(eq(int, c->status, 2));
    CHECK(strstr(c->err, "did you mean 'cheapest'"), "%s", c->err);
    c = assay("price add v6f 1 --source test");
    cr_assert(eq(int, c->status, 0));
    CHECK(strstr(c->err, "no chip 'v6f' ships"), "%s", c->err);
    c = assay("query --sql 'SELECT 1 AS a, 2 AS a' --json");
    cr_assert(eq(int, c->status, 2));
    CHECK(strstr(c->err, "both called 'a'"), "%s", c->err);
}

/* The operations of a simulated run: shares of the busy time add up to one. */
Test(cli_run, show_tells_a_simulated_runs_operations) {
    cr_assert(eq(int, with_tiny("run", "--backend tpu-sim -o chip=v6e -q")->status, 0));
    json_t *v = child_object(assay("show latest --ops --json"));
    const json_t *seen = json_array_get(json_object_get(v, "observed"), 0);
    double sum = 0;
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(seen, "ops"), i, row) {
        sum += json_number_value(json_object_get(row, "share"));
    }
    CHECK(sum > 0.5 && sum < 1.0 + 1e-9, "%.17g", sum); /* the rest: the host */
    json_decref(v);
    const struct child *c = assay("show latest --ops");
    CHECK(strstr(c->out, "up+gate") && strstr(c->out, "useful"), "%s", c->out);
    cr_assert(eq(int, assay("show latest --ops --log")->status, 2));
    cr_assert(eq(int, with_tiny("run", "--backend null -q")->status, 0));
    CHECK(strstr(assay("show latest --ops")->out, "tells no operations"));
}

/* Each what-if is a run on a chip of its own name; a wrong key stops with the chip's own message. */
Test(cli_run, what_if_shows_how_the_answer_moves) {
    json_t *v = child_object(with_tiny("run", "--backend tpu-sim -o chip=v6e --what-if hbm_gbps=2x,clock_ghz=1x --json"));
    const json_t *rows = json_object_get(v, "what_if");
    cr_assert(eq(sz, json_array_size(rows), 3));
    double ratio[3];
    for (size_t i = 0; i < 3; i++)
        ratio[i] = json_number_value(json_object_get(
            json_object_get(json_object_get(json_array_get(rows, i), "figures"), "tpot_p50_ns"), "ratio"));
    cr_assert(eq(dbl, ratio[0], 1.0));
    CHECK(ratio[1] > 0.4 && ratio[1] < 0.8, "a decode step on twice the bandwidth: %g", ratio[1]);
    cr_assert(eq(dbl, ratio[2], 1.0));
    json_decref(v);
    CHECK(strstr(assay("list")->out, "v6e+hbm_gbps=3276"));
    const struct child *c = with_tiny("run", "--backend tpu-sim -o chip=v6e --what-if hbm");
    cr_assert(eq(int, c->status, 2));
    CHECK(strstr(c->err, "expected KEY=FACTORx"), "%s", c->err);
    c = with_tiny("run", "--backend tpu-sim -o chip=v6e --what-if hbm_gpbs=2x");
    cr_assert(eq(int, c->status, 2));
    CHECK(strstr(c->err, "unknown key 'chip.hbm_gpbs'"), "%s", c->err);
    cr_assert(eq(str, (char *)c->out, "")); /* nothing ran */
}
