/* `assay show`: one record in full, its envelope for a third party, or the run's event log. */
#include "harness/cli/out.h"
#include "harness/cli/summary.h"
#include "harness/cli/summary_ops.h"
#include "harness/cli/summary_server.h"
#include "harness/cli/term.h"
#include "harness/cli/verbs.h"
#include "harness/core/json.h"
#include "results/dsse.h"
#include "results/hash.h"
#include "results/store.h"

#include <inttypes.h>
#include <string.h>

struct show_args {
    struct common c;
    bool log, envelope, server, ops;
    int64_t limit;
};

#define AT(field) offsetof(struct show_args, field)
// clang-format off
static const struct option show_options[] = {
    {.name = "envelope", .type = OPT_BOOL, .offset = AT(envelope),
     .help = "the signed DSSE envelope as it is, for 'assay verify FILE' elsewhere"},
    {.name = "log", .type = OPT_BOOL, .offset = AT(log), .help = "the event log, a line an event (CSV)"},
    {.name = "ops", .type = OPT_BOOL, .offset = AT(ops),
     .help = "the operations of a simulated run by falling time; the meshes that mesh=auto compared"},
    {.name = "server", .type = OPT_BOOL, .offset = AT(server),
     .help = "what the server and the devices say of the run, beside the client's figures"},
    {.name = "limit", .type = OPT_I64, .offset = AT(limit), .min = 0, .max = 1e15, .def = "0",
     .help = "events of --log; 0 all"},
    {0},
};
// clang-format on

/* ---- the event log ---- */

static const char *const event_names[EVENT_KIND_COUNT] = {
    [EVENT_NONE] = "none",     [EVENT_MARK] = "mark", [EVENT_SESSION] = "session",
    [EVENT_ISSUE] = "issue",   [EVENT_SENT] = "sent", [EVENT_TOKENS] = "tokens",
    [EVENT_DONE] = "done",     [EVENT_FAIL] = "fail", [EVENT_USAGE] = "usage",
    [EVENT_STEP] = "step",     [EVENT_EVAL] = "eval", [EVENT_CHECKPOINT] = "checkpoint",
    [EVENT_ENGINE] = "engine",
};

static const char *event_name(int kind) {
    return kind >= 0 && kind < EVENT_KIND_COUNT ? event_names[kind] : "unknown";
}

static void print_event(const struct event *v, bool json, int64_t index) {
    if (json)
        printf("%s{\"time_ns\":%" PRId64 ",\"thread\":%" PRIu32
               ",\"event\":\"%s\",\"request\":%" PRIu64 ",\"a\":%" PRId64 ",\"b\":%" PRId64 "}",
               index ? "," : "", v->time_ns, v->thread, event_name(v->kind), v->request, v->a,
               v->b);
    else
        printf("%" PRId64 ",%" PRIu32 ",%s,%" PRIu64 ",%" PRId64 ",%" PRId64 "\n", v->time_ns,
               v->thread, event_name(v->kind), v->request, v->a, v->b);
}

static int show_log(const struct show_args *a, struct store *s, int64_t run_id, const char *uuid,
                    struct err *e) {
    enum { BATCH = 1024 };
    struct eventlog_source source;
    struct eventlog_reader *reader = NULL;
    struct event event[BATCH];
    int64_t left = a->limit ? a->limit : INT64_MAX, index = 0;
    int n, rc = store_log_open(s, run_id, &source, e);
    if (rc)
        return rc;
    rc = eventlog_open(&source, &reader, e);
    if (rc)
        goto out;
    if (a->c.json)
        printf("{\"run\":\"%s\",\"events\":[", uuid);
    else
        puts("time_ns,thread,event,request,a,b");
    do {
        n = 0;
        rc = eventlog_read(reader, event, left < BATCH ? (int)left : BATCH, &n, e);
        for (int i = 0; i < n; i++)
            print_event(&event[i], a->c.json, index++);
        left -= n;
    } while (!rc && n && left);
    /* closed even when the rest is unreadable: the exit code says so, not broken JSON */
    if (a->c.json)
        puts("]}");
    eventlog_close(reader);
out:
    store_log_close(&source);
    return rc;
}

/* ---- the record ---- */

static int signatures_json(const struct dsse *d, json_t **out, struct err *e) {
    struct buf b;
    buf_init(&b, 4096);
    int bad = !(*out = json_array());
    for (int i = 0; i < d->nsig && !bad; i++) {
        buf_clear(&b);
        base64_encode(d->sig[i].sig, sizeof d->sig[i].sig, &b);
        bad = b.failed || json_array_append_new(
                              *out, json_pack("{s:s,s:s}", "keyid", d->sig[i].keyid, "sig", b.p));
    }
    buf_release(&b);
    return bad ? err_set(e, ASSAY_ENOMEM, "out of memory") : 0;
}

static const char *text_in(const json_t *v, const char *object, const char *name) {
    const char *s = json_string_value(json_object_get(json_object_get(v, object), name));
    return s ? s : "";
}

/* The metrics of a record are a list of figures; people want them as a table. */
static void print_metrics(const json_t *metrics, struct arena *a, FILE *out) {
    static const char *const headings[] = {"metric", "stat", "value", "unit", "n"};
    struct table t;
    size_t i;
    json_t *m;
    char text[FMT_BYTES];
    table_init(&t, a, "llrlr", headings);
    json_array_foreach(metrics, i, m) {
        const char *name = json_string_value(json_object_get(m, "name"));
        const char *stat = json_string_value(json_object_get(m, "stat"));
        const char *unit = json_string_value(json_object_get(m, "unit"));
        const json_t *value = json_object_get(m, "value"), *n = json_object_get(m, "n");
        bool ns = unit && !strcmp(unit, "ns");
        table_cell(&t, name);
        table_cell(&t, stat);
        if (json_is_number(value))
            table_cell(&t, (ns ? fmt_ns : fmt_number)(text, json_number_value(value)));
        else
            table_cell(&t, json_string_value(value));
        table_cell(&t, ns ? "" : unit);
        table_cell(&t, json_is_integer(n) ? fmt_count(text, json_integer_value(n)) : "");
    }
    if (t.n) {
        putc('\n', out);
        table_print(&t, out, 0);
    }
}

/* What a record says of one thread, without the table that --ops prints. */
static void drop_ops(json_t *rest) {
    size_t i;
    json_t *seen, *observed = json_deep_copy(json_object_get(rest, "observed"));
    json_array_foreach(observed, i, seen) {
        json_object_del(seen, "ops");
        json_object_del(seen, "mesh_search");
    }
    if (observed)
        json_object_set_new(rest, "observed", observed);
}

static void print_record(const json_t *statement, const json_t *signatures, const char *digest,
                         struct arena *a, FILE *out) {
    const json_t *predicate = json_object_get(statement, "predicate");
    const char *shout = class_shout(text_in(predicate, "system", "class"));
    fprintf(out, "%s%s%srun %s  %s%s\n", term_bold(out), shout, *shout ? "  " : "",
            text_in(predicate, "run", "runId"), text_in(predicate, "run", "verdict"),
            term_plain(out));
    fprintf(out, "record sha256 %s\n\n", digest);
    /* what a reader looks for first; the configuration in full comes last */
    static const char *const first[] = {"run", "workload", "system", "client", "bottleneck"};
    json_t *rest = json_copy((json_t *)(uintptr_t)predicate), *head = json_object();
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        if (json_object_get(rest, first[i])) {
            json_object_set(head, first[i], json_object_get(rest, first[i]));
            json_object_del(rest, first[i]);
        }
    json_object_del(rest, "metrics");
    drop_ops(rest);
    out_tree(head, 0, out);
    print_metrics(json_object_get(predicate, "metrics"), a, out);
    putc('\n', out);
    out_tree(rest, 0, out);
    json_decref(head);
    json_decref(rest);
    fputs("\nsubjects\n", out);
    out_tree(json_object_get(statement, "subject"), 2, out);
    fputs("\nsignatures\n", out);
    out_tree(signatures, 2, out);
}

/* The parts that were read beside the run. */
static int show_server(const json_t *statement, const char *uuid, bool json, struct arena *arena,
                       struct err *e) {
    const json_t *predicate = json_object_get(statement, "predicate"),
                 *server = json_object_get(predicate, "server"),
                 *power = json_object_get(predicate, "power");
    if (json) {
        json_t *root = json_pack("{s:s, s:O*, s:O*}", "run", uuid, "server", server, "power", power);
        if (!root)
            return err_set(e, ASSAY_ENOMEM, "out of memory");
        out_json(root, stdout);
        json_decref(root);
        return 0;
    }
    const char *shout = class_shout(text_in(predicate, "system", "class"));
    printf("%s%srun %s\n", shout, *shout ? "  " : "", uuid);
    if (!server && !power)
        puts("\nnothing was read beside this run: see 'assay help run', --scrape and --telemetry");
    summary_server(server, arena, stdout);
    if (server) {
        putchar('\n');
        out_tree(server, 0, stdout);
    }
    summary_power(power, arena, stdout);
    return 0;
}

static int show_ops(const json_t *statement, const char *uuid, bool json, struct arena *arena, struct err *e) {
    const json_t *predicate = json_object_get(statement, "predicate"), *observed = json_object_get(predicate, "observed");
    if (json) {
        json_t *root = json_pack("{s:s, s:O*}", "run", uuid, "observed", observed);
        if (!root)
            return err_set(e, ASSAY_ENOMEM, "out of memory");
        out_json(root, stdout);
        json_decref(root);
        return 0;
    }
    const char *shout = class_shout(text_in(predicate, "system", "class"));
    printf("%s%srun %s\n", shout, *shout ? "  " : "", uuid);
    if (!summary_ops(observed, arena, stdout))
        puts("\nthis run's backend tells no operations: tpu-sim does for serving, and its meshes for training with mesh=auto");
    return 0;
}

static int show_record(const struct show_args *a, struct arena *arena, struct store *s,
                       int64_t run_id, const char *uuid, struct err *e) {
    struct dsse d = {0};
    json_t *statement = NULL, *signatures = NULL, *root = NULL;
    unsigned char digest[SHA256_BYTES];
    char hex[SHA256_HEX];
    int rc = store_envelope(s, run_id, &d, e);
    if (rc)
        return rc;
    if (a->envelope) {
        struct buf b;
        buf_init(&b, 4 * DSSE_PAYLOAD_MAX_BYTES);
        rc = dsse_print(d.payload_type, d.payload.p, d.payload.n, d.sig, d.nsig, &b, e);
        if (!rc)
            rc = buf_check(&b, "the envelope", e);
        if (!rc)
            puts(b.p);
        buf_release(&b);
        goto out;
    }
    rc = json_parse(d.payload.p, d.payload.n, uuid, &statement, e);
    if (!rc)
        rc = signatures_json(&d, &signatures, e);
    if (rc)
        goto out;
    if (a->server || a->ops) {
        rc = (a->server ? show_server : show_ops)(statement, uuid, a->c.json, arena, e);
        goto out;
    }
    sha256(d.payload.p, d.payload.n, digest);
    hex_encode(digest, sizeof digest, hex);
    if (a->c.json) {
        root = json_pack("{s:s,s:s,s:s,s:O,s:O}", "run", uuid, "record_sha256", hex, "payload_type",
                         d.payload_type, "statement", statement, "signatures", signatures);
        if (root)
            out_json(root, stdout);
        else
            rc = err_set(e, ASSAY_ENOMEM, "out of memory");
    } else {
        print_record(statement, signatures, hex, arena, stdout);
    }
out:
    json_decref(root);
    json_decref(signatures);
    json_decref(statement);
    dsse_release(&d);
    return rc;
}

static int run_show(void *options, struct err *e) {
    struct show_args *a = options;
    struct store *s = NULL;
    int64_t run_id;
    char uuid[RUN_UUID];
    if (a->log + a->envelope + a->server + a->ops > 1)
        return err_set(e, ASSAY_EUSAGE, "show: --log, --envelope, --ops and --server exclude each other");
    int rc = store_open(a->c.db, STORE_READ, &s, NULL, e);
    if (rc)
        return rc;
    rc = store_find_run(s, a->c.args.v[0], &run_id, uuid, e);
    if (!rc && a->log)
        rc = show_log(a, s, run_id, uuid, e);
    else if (!rc)
        rc = show_record(a, &a->c.arena, s, run_id, uuid, e);
    store_close(s);
    return rc;
}

// clang-format off
const struct verb verb_show = {
    .name = "show",
    .usage = "RUN",
    .summary = "one record in full, its envelope, or its event log",
    .about = "RUN is a run's id, a unique beginning of it (four characters and more), or 'latest'. The "
             "record is what was signed; 'assay verify' says whether it holds.",
    .examples = "assay show latest\n"
                "assay show 0197c2f4 --envelope > record.json\n"
                "assay show latest --log --limit 100\n",
    .args_min = 1,
    .args_max = 1,
    .options_size = sizeof(struct show_args),
    .options = (const struct option *const[]){show_options, common_store, common_output, NULL},
    .run = run_show,
};
// clang-format on
