/* `assay serve` as a script uses it: read the URL, ask it, end it. Timing is tested with the room. */
#include "tests/cli/child.h"

#include <curl/curl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(cli_serve, .fini = child_home_remove);

static size_t take(char *p, size_t size, size_t n, void *to) {
    char *text = to;
    size_t used = strlen(text), bytes = size * n;
    if (used + bytes < 4096) {
        memcpy(text + used, p, bytes);
        text[used + bytes] = '\0';
    }
    return bytes;
}

static long get(const char *base, const char *path, char *body) {
    char url[256];
    long status = 0;
    snprintf(url, sizeof url, "%s%s", base, path);
    CURL *c = curl_easy_init();
    body[0] = '\0';
    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, body);
    cr_assert(eq(int, curl_easy_perform(c), CURLE_OK));
    curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(c);
    return status;
}

/* `assay serve` with a simulated chip, and the one line that it prints: its URL. */
struct served {
    pid_t pid;
    FILE *out;
    char url[256];
};

static struct served serve_start(void) {
    struct served v = {0};
    char path[512];
    const char *build = getenv("ASSAY_BUILD");
    int out[2];
    snprintf(path, sizeof path, "%s/assay", build && *build ? build : "build");
    cr_assert(eq(int, pipe(out), 0));
    v.pid = fork();
    if (!v.pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves no server behind */
        dup2(out[1], 1);
        close(out[0]);
        execl(path, path, "serve", "llama3.1-8b", "-o", "chip=v6e", "--port", "0", "--quiet", NULL);
        _exit(127);
    }
    close(out[1]);
    v.out = fdopen(out[0], "r");
    CHECK(fgets(v.url, sizeof v.url, v.out), "it printed nothing");
    v.url[strcspn(v.url, "\n")] = '\0';
    return v;
}

Test(cli_serve, is_ready_when_it_says_so_and_ends_at_a_signal) {
    char body[4096], line[256];
    struct served v = serve_start();
    cr_assert(eq(int, strncmp(v.url, "http://127.0.0.1:", 17), 0));
    cr_assert(eq(long, get(v.url, "/health", body), 200));
    cr_assert(eq(long, get(v.url, "/v1/models", body), 200));
    CHECK(strstr(body, "sim/v6e"), "%s", body);
    CHECK(strstr(body, "llama3.1-8b"), "%s", body);
    kill(v.pid, SIGTERM);
    int status;
    waitpid(v.pid, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(!fgets(line, sizeof line, v.out), "more than the URL on stdout: %s", line);
    fclose(v.out);
}

/* A run against our own server reads the server's counters beside it: the tokens agree, the series are
 * verified, and --scrape off reads nothing. A page that is no metrics page is refused when asked for. */
Test(cli_serve, a_run_keeps_what_the_server_says) {
    char args[1024];
    struct served s = serve_start();
    static const char run[] = "run chat-serving --backend http -o url=%s --requests 20 --pattern concurrency:10 "
                              "--isl 50 --osl 10 --json --scrape-interval 50ms --scrape %s";
    snprintf(args, sizeof args, run, s.url, "auto");
    const struct child *c = assay(args);
    CHECK(c->status == 0 || c->status == 1, "%d: %s", c->status, c->err);
    json_t *v = child_object(c), *server = json_object_get(v, "server");
    const json_t *tokens = json_object_get(json_object_get(server, "beside_client"), "generation_tokens");
    CHECK(json_integer_value(json_object_get(tokens, "server")) > 0, "%s", c->out);
    cr_assert(eq(i64, json_integer_value(json_object_get(tokens, "server")),
                 json_integer_value(json_object_get(tokens, "client"))));
    cr_assert(eq(sz, json_array_size(json_object_get(server, "warnings")), 0));
    CHECK(json_object_get(json_object_get(v, "metrics"), "stamp_bound_ns"), "%s", c->out);
    json_decref(v);
    c = assay("verify latest --json");
    cr_assert(eq(int, c->status, 0), "%s", c->out);
    CHECK(strstr(c->out, "\"series\"") && strstr(c->out, "follow from its series"), "%s", c->out);
    c = assay("show latest --server");
    CHECK(strstr(c->out, "generation tokens, whole run"), "%s", c->out);
    c = assay("query server --json");
    CHECK(strstr(c->out, "server_tokens"), "%s", c->out);
    snprintf(args, sizeof args, run, s.url, "off");
    v = child_object(assay(args));
    CHECK(!json_object_get(v, "server"), "--scrape off read something");
    json_decref(v);
    char url[300];
    snprintf(url, sizeof url, "%s/health", s.url);
    snprintf(args, sizeof args, run, s.url, url);
    c = assay(args);
    CHECK(c->status == 3 || c->status == 2, "%d: %s", c->status, c->err);
    CHECK(strstr(c->err, "/health"), "%s", c->err);
    kill(s.pid, SIGTERM);
    waitpid(s.pid, NULL, 0);
    fclose(s.out);
}

/* The summary says what the client itself may have added, and of whom; a client that reads no wire has no
 * such line. */
Test(cli_serve, the_summary_tells_of_the_client) {
    char args[512], unit[2][8] = {"", ""};
    double p50 = -1, p99 = -1, cpu = -1, own = -1, forced = -1;
    struct served s = serve_start();
    snprintf(args, sizeof args, "run chat-serving --backend http -o url=%s --requests 20 --pattern concurrency:4 "
                                "--isl 50 --osl 10", s.url);
    const struct child *c = assay(args);
    CHECK(c->status == 0 || c->status == 1, "%d: %s", c->status, c->err);
    const char *line = strstr(c->out, "\nclient      stamps");
    CHECK(line, "%s", c->out);
    int n = sscanf(line, "\nclient stamps late by at most p50 %lf %7[^,], p99 %lf %7[^;]; %lf %% of a core; "
                         "switches %lf own, %lf forced", &p50, unit[0], &p99, unit[1], &cpu, &own, &forced);
    CHECK(n == 7 && p50 > 0 && p99 > 0 && cpu > 0 && own >= 0 && forced >= 0, "%d of:%.200s", n, line);
    for (int i = 0; i < 2; i++)
        CHECK(!strcmp(unit[i], "µs") || !strcmp(unit[i], "ms") || !strcmp(unit[i], "s"), "%s", unit[i]);
    c = assay("run chat-serving --backend null --requests 20");
    CHECK(!strstr(c->out, "stamps late"), "%s", c->out);
    kill(s.pid, SIGTERM);
    waitpid(s.pid, NULL, 0);
    fclose(s.out);
}

Test(cli_serve, wrong_use) {
    static const struct {
        const char *args, *says;
    } uses[] = {
        {"serve", "expected WORKLOAD|MODEL"},
        {"serve no-such-model", "no-such-model"},
        {"serve llama3.1-8b --port 70000", "--port: expected an integer in 0..65535"},
        {"serve llama3.1-8b -o chip=v6e -o chps=4", "did you mean 'chips'?"},
        {"serve llama3.1-8b --backend nul", "did you mean 'null'?"},
        {"serve llama3.1-8b --set isl=4", "--set is for workloads"},
        {"serve llama3.1-8b -o chip=v6e --bind localhost", "localhost"},
        {"serve llama3.1-405b -o chip=v6e --port 0", "does not fit"},
    };
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        const struct child *c = assay(uses[i].args);
        cr_assert(eq(int, c->status, 2), "assay %s: %s", uses[i].args, c->err);
        CHECK(strstr(c->err, uses[i].says), "assay %s: %s", uses[i].args, c->err);
        cr_assert(eq(str, (char *)c->out, ""));
    }
}
