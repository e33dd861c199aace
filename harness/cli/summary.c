/* The summary for people. Reads only the JSON object of the contract, so that what the table says
 * is what --json says; a member that is absent is a line that is absent. */
#include "harness/cli/summary.h"
#include "harness/cli/summary_server.h"

#include "harness/cli/term.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

const char *class_shout(const char *result_class) {
    static const char *const shouts[][2] = {
        {"none", "NO SYSTEM"},
        {"projected", "PROJECTED"},
        {"simulated", "SIMULATED"},
        {"emulated", "EMULATED"},
    };
    for (size_t i = 0; result_class && i < sizeof shouts / sizeof *shouts; i++)
        if (!strcmp(shouts[i][0], result_class))
            return shouts[i][1];
    return "";
}

static const char *text_at(const json_t *o, const char *name, const char *otherwise) {
    const char *s = json_string_value(json_object_get(o, name));
    return s ? s : otherwise;
}

/* A metric is a number, or an object of statistics with "value" or "mean". NULL: not there. */
static const json_t *number_at(const json_t *metrics, const char *name, const char *stat) {
    const json_t *v = json_object_get(metrics, name);
    if (json_is_object(v))
        v = json_object_get(v, stat);
    return json_is_number(v) ? v : NULL;
}

static void heading(const json_t *summary, FILE *out) {
    const json_t *backend = json_object_get(summary, "backend");
    const char *shout = class_shout(text_at(backend, "class", NULL));
    const json_t *valid = json_object_get(summary, "valid");
    fputs(term_bold(out), out);
    if (*shout)
        fprintf(out, "%s  ", shout);
    fprintf(out, "run %s  %s%s", text_at(summary, "run", "?"),
            json_is_true(valid) ? "VALID" : "INVALID",
            json_is_true(json_object_get(summary, "partial")) ? " (partial)" : "");
    fprintf(out, "%s\n", term_plain(out));
}

static void subject(const json_t *summary, FILE *out) {
    const json_t *workload = json_object_get(summary, "workload");
    const json_t *backend = json_object_get(summary, "backend");
    term_text(out, text_at(workload, "name", "?"));
    const char *version = text_at(workload, "version", NULL);
    if (version) {
        fputs(" ", out);
        term_text(out, version);
    }
    fputs(" on ", out);
    term_text(out, text_at(backend, "name", "?"));
    const char *chip = text_at(backend, "chip", NULL);
    const json_t *chips = json_object_get(backend, "chips");
    if (chip && *chip) {
        fputs(", ", out);
        term_text(out, chip);
        if (json_is_integer(chips))
            fprintf(out, " x %" JSON_INTEGER_FORMAT, json_integer_value(chips));
    }
    const char *pattern = text_at(summary, "pattern", text_at(workload, "pattern", NULL));
    if (pattern) {
        fputs(", ", out);
        term_text(out, pattern);
    }
    const json_t *campaign = json_object_get(summary, "campaign");
    if (campaign) {
        fputs("\ncampaign ", out);
        term_text(out, text_at(campaign, "name", "?"));
        const json_t *attempt = json_object_get(campaign, "attempt");
        if (json_is_integer(attempt))
            fprintf(out, ", attempt %" JSON_INTEGER_FORMAT, json_integer_value(attempt));
    }
    putc('\n', out);
}

static void window(const json_t *metrics, FILE *out) {
    const json_t *requests = json_object_get(metrics, "requests");
    const json_t *duration = json_object_get(metrics, "duration_ns");
    char t[FMT_BYTES];
    if (json_is_number(duration))
        fprintf(out, "window %s", fmt_ns(t, json_number_value(duration)));
    if (json_is_object(requests)) {
        static const char *const counts[] = {"issued", "completed", "failed"};
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            const json_t *n = json_object_get(requests, counts[i]);
            if (json_is_integer(n))
                fprintf(out, "%s%s %s", i == 0 ? "; requests: " : ", ",
                        fmt_count(t, json_integer_value(n)), counts[i]);
        }
    }
    putc('\n', out);
}

static const struct {
    const char *member, *label;
} latencies[] = {
    {"ttft_ns", "TTFT"},
    {"tpot_ns", "TPOT"},
    {"itl_ns", "ITL"},
    {"e2e_ns", "E2E"},
    {"session_e2e_ns", "session"},
    {"step_ns", "step"},
    {"lateness_ns", "client lateness"},
};

void summary_latencies(const json_t *metrics, struct arena *a, FILE *out) {
    static const char *const stats[] = {"mean", "p50", "p90", "p99", "max"};
    static const char *const headings[] = {"latency", "mean", "p50", "p90", "p99", "max"};
    enum { STATS = sizeof stats / sizeof *stats };
    struct table t;
    bool missing = false;
    table_init(&t, a, "lrrrrr", headings);
    for (size_t i = 0; i < sizeof latencies / sizeof *latencies; i++) {
        const json_t *m = json_object_get(metrics, latencies[i].member);
        if (!json_is_object(m))
            continue;
        table_cell(&t, latencies[i].label);
        for (size_t s = 0; s < STATS; s++) {
            char text[FMT_BYTES];
            const json_t *v = json_object_get(m, stats[s]);
            table_cell(&t, json_is_number(v) ? fmt_ns(text, json_number_value(v)) : "-");
            missing |= !json_is_number(v);
        }
    }
    if (t.n) {
        putc('\n', out);
        table_print(&t, out, 0);
    }
    if (missing)
        fputs("-: too few observations for this percentile\n", out);
}

static void throughput(const json_t *metrics, struct arena *a, FILE *out) {
    static const struct {
        const char *member, *stat, *label;
    } rows[] = {
        {"requests_per_s", "value", "requests/s"},
        {"goodput_requests_per_s", "value", "goodput requests/s"},
        {"output_tokens_per_s", "value", "output tok/s"},
        {"output_tokens_per_s_per_chip", "value", "output tok/s/chip"},
        {"total_tokens_per_s", "value", "total tok/s"},
        {"tokens_per_s_per_user", "p50", "tok/s/user p50"},
        {"tokens_per_s_per_user", "p90", "tok/s/user p90"},
        {"step_samples_per_s", "value", "samples/s"},
        {"step_tokens_per_s", "value", "tok/s"},
        {"step_tokens_per_s_per_chip", "value", "tok/s/chip"},
    };
    static const char *const headings[] = {"throughput", ""};
    struct table t;
    table_init(&t, a, "lr", headings);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const json_t *v = number_at(metrics, rows[i].member, rows[i].stat);
        if (!v)
            continue;
        char text[FMT_BYTES];
        table_cell(&t, rows[i].label);
        table_cell(&t, fmt_number(text, json_number_value(v)));
    }
    const json_t *mfu = number_at(metrics, "mfu", "value");
    if (mfu) {
        char text[FMT_BYTES];
        table_cell(&t, "MFU");
        table_cell(&t, fmt_percent(text, json_number_value(mfu)));
    }
    if (t.n) {
        putc('\n', out);
        table_print(&t, out, 0);
    }
}

/* What the server says it had of the prompts, by turn of their sessions. */
static void cached(const json_t *metrics, struct arena *a, FILE *out) {
    static const struct {
        const char *name, *stat, *label;
    } rows[] = {
        {"cached_token_share", "value", "all"},
        {"cached_token_share_by_turn", "turn_1", "turn 1"},
        {"cached_token_share_by_turn", "turn_2", "turn 2"},
        {"cached_token_share_by_turn", "turns_3_4", "turns 3 to 4"},
        {"cached_token_share_by_turn", "turns_5_8", "turns 5 to 8"},
        {"cached_token_share_by_turn", "turns_9_16", "turns 9 to 16"},
        {"cached_token_share_by_turn", "turns_17_32", "turns 17 to 32"},
        {"cached_token_share_by_turn", "turns_33_64", "turns 33 to 64"},
        {"cached_token_share_by_turn", "turns_65_up", "turns 65 up"},
    };
    static const char *const headings[] = {"cached input", ""};
    struct table t;
    table_init(&t, a, "lr", headings);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const json_t *v = number_at(metrics, rows[i].name, rows[i].stat);
        char text[FMT_BYTES];
        if (!v)
            continue;
        table_cell(&t, rows[i].label);
        table_cell(&t, fmt_percent(text, json_number_value(v)));
    }
    if (t.n) {
        putc('\n', out);
        table_print(&t, out, 0);
    }
}

/* Largest first; what is nothing in the digits shown is left out. */
static void bottleneck(const json_t *summary, FILE *out) {
    enum { SHARES_MAX = 16 };
    const json_t *shares = json_object_get(summary, "bottleneck"), *order[SHARES_MAX];
    size_t i, n = 0;
    json_t *share;
    json_array_foreach(shares, i, share) {
        double v = json_number_value(json_object_get(share, "share"));
        if (n == SHARES_MAX || v < 0.0005)
            continue;
        size_t at = n++;
        for (; at && json_number_value(json_object_get(order[at - 1], "share")) < v; at--)
            order[at] = order[at - 1];
        order[at] = share;
    }
    if (!n)
        return;
    fprintf(out, "\n%sbottleneck%s", term_bold(out), term_plain(out));
    for (i = 0; i < n; i++) {
        char text[FMT_BYTES];
        fputs(i ? ", " : "  ", out);
        term_text(out, text_at(order[i], "resource", "?"));
        fprintf(out, " %s",
                fmt_percent(text, json_number_value(json_object_get(order[i], "share"))));
    }
    putc('\n', out);
}

/* The load generator itself, when its stamps come off a wire: what it may have added to the figures. */
static void client(const json_t *summary, FILE *out) {
    const json_t *metrics = json_object_get(summary, "metrics"), *c = json_object_get(summary, "client"),
                 *p50 = number_at(metrics, "stamp_bound_ns", "p50"),
                 *p99 = number_at(metrics, "stamp_bound_ns", "p99"),
                 *cpu = json_object_get(c, "cpu_share"), *steal = json_object_get(c, "steal_share"),
                 *own = json_object_get(c, "voluntary_switches"),
                 *forced = json_object_get(c, "involuntary_switches");
    char t[FMT_BYTES];
    if (!p50 || !p99)
        return;
    fprintf(out, "\n%sclient%s      stamps late by at most p50 %s", term_bold(out), term_plain(out),
            fmt_ns(t, json_number_value(p50)));
    fprintf(out, ", p99 %s", fmt_ns(t, json_number_value(p99)));
    if (json_is_number(cpu))
        fprintf(out, "; %s of a core", fmt_percent(t, json_number_value(cpu)));
    if (json_is_integer(own) && json_is_integer(forced)) {
        fprintf(out, "; switches %s", fmt_count(t, json_integer_value(own)));
        fprintf(out, " own, %s forced", fmt_count(t, json_integer_value(forced)));
    }
    if (json_is_number(steal))
        fprintf(out, "; stolen %s", fmt_percent(t, json_number_value(steal)));
    putc('\n', out);
}

static void verdicts(const json_t *summary, struct arena *a, FILE *out) {
    const json_t *list = json_object_get(summary, "verdicts");
    static const char *const headings[] = {"", "rule", "want", "got"};
    struct table t;
    table_init(&t, a, "llll", headings);
    size_t i;
    json_t *v;
    json_array_foreach(list, i, v) {
        table_cell(&t, json_is_true(json_object_get(v, "ok")) ? "ok" : "FAIL");
        table_cell(&t, text_at(v, "rule", "?"));
        table_cell(&t, text_at(v, "want", ""));
        table_cell(&t, text_at(v, "got", ""));
    }
    if (t.n) {
        putc('\n', out);
        table_print(&t, out, 0);
    }
}

static void warnings(const json_t *summary, FILE *out) {
    size_t i;
    json_t *w;
    json_array_foreach(json_object_get(summary, "warnings"), i, w) {
        fputs(i ? "warning  " : "\nwarning  ", out);
        term_text(out, json_string_value(w) ? json_string_value(w) : "?");
        putc('\n', out);
    }
}

void summary_print(const json_t *summary, const char *store, struct arena *a, FILE *out) {
    const json_t *metrics = json_object_get(summary, "metrics");
    heading(summary, out);
    subject(summary, out);
    window(metrics, out);
    summary_latencies(metrics, a, out);
    throughput(metrics, a, out);
    cached(metrics, a, out);
    bottleneck(summary, out);
    client(summary, out);
    summary_server(json_object_get(summary, "server"), a, out);
    summary_power(json_object_get(summary, "power"), a, out);
    verdicts(summary, a, out);
    warnings(summary, out);
    const char *digest = text_at(summary, "record_sha256", NULL),
               *id = text_at(summary, "run", "?");
    putc('\n', out);
    if (digest)
        fprintf(out, "record  sha256 %s\n", digest);
    if (store) {
        fputs("store   ", out);
        term_text(out, store);
        putc('\n', out);
    }
    fprintf(out, "verify  assay verify %s\n", id);
}

void summary_line(const json_t *summary, FILE *out) {
    const char *shout = class_shout(text_at(json_object_get(summary, "backend"), "class", NULL));
    fprintf(out, "%s%s%s %s ", shout, *shout ? " " : "", text_at(summary, "run", "?"),
            json_is_true(json_object_get(summary, "valid")) ? "VALID" : "INVALID");
    term_text(out, text_at(json_object_get(summary, "workload"), "name", "?"));
    putc('\n', out);
}
