/* `assay verify`: the verifier's report, under the keys that count on this machine. */
#include "results/verify.h"
#include "harness/cli/out.h"
#include "harness/cli/summary.h"
#include "harness/cli/term.h"
#include "harness/cli/trust.h"
#include "harness/cli/verbs.h"

#include <string.h>
#include <unistd.h>

struct verify_args {
    struct common c;
    bool all;
};

// clang-format off
static const struct option verify_options[] = {
    {.name = "all", .type = OPT_BOOL, .offset = offsetof(struct verify_args, all),
     .help = "the whole store: register, every run, every row against its payload"},
    {0},
};
// clang-format on

struct keys {
    struct public_key *key;
    int n;
};

/* One look with the given keys: at the store's run, at the whole store, or at an envelope file. */
static int look(const struct verify_args *a, struct store *s, const char *file,
                const struct keys *k, enum verify_outcome *outcome, json_t **report,
                struct err *e) {
    const char *ref = a->c.args.n ? a->c.args.v[0] : "latest";
    if (file)
        return verify_file(file, k->key, k->n, outcome, report, e);
    if (a->all)
        return verify_store(s, k->key, k->n, outcome, report, e);
    return verify_run(s, ref, k->key, k->n, outcome, report, e);
}

/* A record that nobody trusted signed may be one that a revoked key signed: that has its own name.
 */
static int tell_revoked(const struct verify_args *a, struct store *s, const char *file,
                        const struct keys *revoked, enum verify_outcome *outcome, json_t *report,
                        struct err *e) {
    enum verify_outcome with;
    json_t *other = NULL;
    if (*outcome != VERIFY_UNTRUSTED || !revoked->n || a->all)
        return 0;
    int rc = look(a, s, file, revoked, &with, &other, e);
    json_decref(other);
    if (rc || with == VERIFY_UNTRUSTED)
        return rc;
    *outcome = VERIFY_REVOKED;
    json_t *check = json_pack("{s:s,s:b,s:s}", "check", "key_status", "ok", 0, "detail",
                              "the key that signed it is revoked here, see 'assay key list'");
    int bad = json_object_set_new(report, "outcome", json_string(verify_outcome_name(*outcome)));
    bad |= json_array_append_new(json_object_get(report, "checks"), check);
    return bad ? err_set(e, ASSAY_ENOMEM, "out of memory") : 0;
}

/* A record that only this machine's own key signed is trusted here and nowhere else. */
static void tell_local(const struct trust_key *all, int n, json_t *report) {
    size_t i;
    json_t *signer;
    bool local = false, other = false;
    json_array_foreach(json_object_get(report, "signers"), i, signer) {
        const char *keyid = json_string_value(json_object_get(signer, "keyid"));
        for (int k = 0; keyid && k < n; k++) {
            bool same = !strcmp(all[k].key.keyid, keyid);
            local |= same && all[k].role == TRUST_RUNNER;
            other |= same && all[k].role == TRUST_TRUSTED;
        }
    }
    const char *trust = json_string_value(json_object_get(report, "trust"));
    if (local && !other && trust && !strcmp(trust, "trusted"))
        json_object_set_new(report, "trust", json_string("local"));
}

static void print_checks(const json_t *checks, struct arena *a, int indent, FILE *out) {
    struct table t;
    size_t i;
    json_t *c;
    table_init(&t, a, "lll", NULL);
    json_array_foreach(checks, i, c) {
        const char *name = json_string_value(json_object_get(c, "check"));
        const char *detail = json_string_value(json_object_get(c, "detail"));
        table_cell(&t, json_is_true(json_object_get(c, "ok")) ? "ok" : "FAIL");
        table_cell(&t, name ? name : "?");
        table_cell(&t, detail ? detail : "");
    }
    table_print(&t, out, indent);
}

/* Members of the report that the checks do not say already, as they come. */
static void print_rest(const json_t *report, FILE *out) {
    static const char *const said[] = {"outcome", "run",     "class",         "checks",  "chip",
                                       "chips",   "verdict", "record_sha256", "register"};
    json_t *rest = json_copy((json_t *)(uintptr_t)report);
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        json_object_del(rest, said[i]);
    if (json_object_size(rest)) {
        putc('\n', out);
        out_tree(rest, 0, out);
    }
    json_decref(rest);
}

static void print_report(const json_t *report, struct arena *a, FILE *out) {
    const char *shout = class_shout(json_string_value(json_object_get(report, "class")));
    const char *outcome = json_string_value(json_object_get(report, "outcome"));
    const char *run = json_string_value(json_object_get(report, "run"));
    fputs(term_bold(out), out);
    if (*shout)
        fprintf(out, "%s  ", shout);
    if (run)
        fprintf(out, "run %s  ", run);
    fprintf(out, "%s%s\n\n", outcome ? outcome : "?", term_plain(out));
    print_checks(json_object_get(report, "checks"), a, 0, out);
    print_rest(report, out);
}

/* A file when it looks like one and not like a run's id. */
static const char *file_of(const struct verify_args *a) {
    const char *ref = a->c.args.n ? a->c.args.v[0] : NULL;
    if (!ref)
        return NULL;
    size_t n = strlen(ref);
    bool named_so = strchr(ref, '/') || (n > 5 && !strcmp(ref + n - 5, ".json"));
    return named_so || !access(ref, F_OK) ? ref : NULL;
}

static int run_verify(void *options, struct err *e) {
    struct verify_args *a = options;
    const char *file = file_of(a);
    struct trust_key *all;
    struct keys trusted, revoked;
    struct store *s = NULL;
    json_t *report = NULL;
    enum verify_outcome outcome = VERIFY_OK;
    int n, rc;
    if (a->all && a->c.args.n)
        return err_set(e, ASSAY_EUSAGE, "verify: --all takes no RUN or FILE");
    rc = trust_load(&a->c.arena, &all, &n, e);
    if (!rc)
        rc = trust_select(&a->c.arena, all, n, false, &trusted.key, &trusted.n, e);
    if (!rc)
        rc = trust_select(&a->c.arena, all, n, true, &revoked.key, &revoked.n, e);
    if (!rc && !file)
        rc = store_open(a->c.db, STORE_READ, &s, NULL, e);
    if (!rc)
        rc = look(a, s, file, &trusted, &outcome, &report, e);
    if (!rc)
        rc = tell_revoked(a, s, file, &revoked, &outcome, report, e);
    if (!rc)
        tell_local(all, n, report);
    if (!rc && a->c.json)
        out_json(report, stdout);
    else if (!rc)
        print_report(report, &a->c.arena, stdout);
    if (!rc && outcome != VERIFY_OK)
        rc = ASSAY_ENEGATIVE;
    json_decref(report);
    if (s)
        store_close(s);
    return rc;
}

// clang-format off
const struct verb verb_verify = {
    .name = "verify",
    .usage = "[RUN|FILE]",
    .summary = "checks signatures, digests and register, and recomputes every published figure",
    .about =
        "Checks one run of the store (its id, a unique beginning of it, or 'latest', which is also the "
        "default), an envelope file, or with --all the whole store: signature, canonical form, digests "
        "of the event log, place in the register, Merkle proofs; and computes every metric and verdict "
        "again from the log. Nothing stops at the first failure.\n\n"
        "Keys that count are this machine's runner key and those of 'assay key trust'. The outcome is "
        "one of OK, UNTRUSTED, INVALID, EXPIRED, REVOKED, INCOMPLETE, MISMATCH, REGISTER; all but OK "
        "exit with 1.",
    .examples = "assay verify latest\n"
                "assay verify 0197c2f4 --json\n"
                "assay verify record.json\n"
                "assay verify --all\n",
    .args_min = 0,
    .args_max = 1,
    .options_size = sizeof(struct verify_args),
    .options = (const struct option *const[]){verify_options, common_store, common_output, NULL},
    .run = run_verify,
};
// clang-format on
