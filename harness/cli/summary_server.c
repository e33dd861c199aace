/* What was read beside a run, for people. A row is a path into the object; what is absent is left
 * out. */
#include "harness/cli/summary_server.h"

#include "harness/cli/term.h"

#include <string.h>

enum shown_as { AS_COUNT, AS_NS, AS_SHARE };

static const struct {
    const char *label;
    enum shown_as as;
    const char *server[3], *client[3]; /* members, outermost first */
} rows[] = {
    {"generation tokens, whole run", AS_COUNT, {"beside_client", "generation_tokens", "server"}, {"beside_client", "generation_tokens", "client"}},
    {"prompt tokens, whole run", AS_COUNT, {"beside_client", "prompt_tokens", "server"}, {"beside_client", "prompt_tokens", "client"}},
    {"requests, whole run", AS_COUNT, {"beside_client", "requests", "server"}, {"beside_client", "requests", "client"}},
    {"TTFT mean", AS_NS, {"ttft_ns", "mean"}, {"beside_client", "ttft_ns", "client"}},
    {"TPOT mean", AS_NS, {"tpot_ns", "mean"}, {0}},
    {"E2E mean", AS_NS, {"e2e_ns", "mean"}, {"beside_client", "e2e_ns", "client"}},
    {"queue time mean", AS_NS, {"queue_time_ns", "mean"}, {0}},
    {"queue time p99", AS_NS, {"queue_time_ns", "p99", "value"}, {0}},
    {"running max", AS_COUNT, {"running", "max"}, {0}},
    {"waiting max", AS_COUNT, {"waiting", "max"}, {0}},
    {"KV cache used max", AS_SHARE, {"kv_cache_usage", "max"}, {0}},
    {"prefix cache hits", AS_SHARE, {"prefix_cache_hit_share"}, {0}},
    {"preemptions", AS_COUNT, {"preemptions", "window"}, {0}},
    {"drafts accepted", AS_SHARE, {"spec_accept_share"}, {0}},
};

static const json_t *at(const json_t *o, const char *const path[3]) {
    for (int i = 0; o && i < 3 && path[i]; i++)
        o = json_object_get(o, path[i]);
    return path[0] && json_is_number(o) ? o : NULL;
}

static const char *cell(char *text, const json_t *v, enum shown_as as) {
    double x = json_number_value(v);
    if (!v)
        return "";
    return as == AS_NS      ? fmt_ns(text, x)
           : as == AS_SHARE ? fmt_percent(text, x)
           : x == (double)(int64_t)x ? fmt_count(text, (int64_t)x)
                                     : fmt_number(text, x);
}

void summary_server(const json_t *server, struct arena *a, FILE *out) {
    static const char *const headings[] = {"server says", "server", "client"};
    struct table t;
    if (!json_is_object(server))
        return;
    table_init(&t, a, "lrr", headings);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[FMT_BYTES];
        const json_t *v = at(server, rows[i].server);
        if (!v)
            continue;
        table_cell(&t, rows[i].label);
        table_cell(&t, cell(text, v, rows[i].as));
        table_cell(&t, cell(text, at(server, rows[i].client), rows[i].as));
    }
    if (t.n) {
        putc('\n', out);
        table_print(&t, out, 0);
    }
}

static void power_cell(struct table *t, const json_t *o, const char *name, const char *unit) {
    char text[FMT_BYTES + 8], number[FMT_BYTES];
    const json_t *v = json_object_get(o, name);
    if (!json_is_number(v))
        *text = '\0';
    else
        snprintf(text, sizeof text, "%s%s", fmt_number(number, json_number_value(v)), unit);
    table_cell(t, text);
}

static void power_row(struct table *t, const char *label, const json_t *o) {
    char text[FMT_BYTES];
    table_cell(t, label);
    power_cell(t, o, "mean_power_w", " W");
    power_cell(t, o, "max_power_w", " W");
    power_cell(t, o, "energy_j", " J");
    const json_t *busy = json_object_get(o, "mean_utilization");
    table_cell(t, json_is_number(busy) ? fmt_percent(text, json_number_value(busy)) : "");
    table_cell(t, fmt_percent(text, json_number_value(json_object_get(o, "coverage"))));
}

void summary_power(const json_t *power, struct arena *a, FILE *out) {
    static const char *const headings[] = {"power", "mean", "max", "energy", "busy", "covered"};
    struct table t;
    size_t i;
    json_t *d;
    char text[FMT_BYTES];
    if (!json_is_object(power))
        return;
    table_init(&t, a, "lrrrrr", headings);
    json_array_foreach(json_object_get(power, "devices"), i, d) {
        const char *name = json_string_value(json_object_get(d, "device"));
        power_row(&t, name ? name : "?", d);
    }
    power_row(&t, "together", power);
    putc('\n', out);
    table_print(&t, out, 0);
    const json_t *joules = json_object_get(power, "joules_per_output_token");
    if (json_is_number(joules))
        fprintf(out, "%s J per output token\n", fmt_number(text, json_number_value(joules)));
}
