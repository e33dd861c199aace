/* Reading a record back from its payload bytes. Whether they were signed, and whether the figures
 * are true, is for verify to say: this is only what the bytes mean. */
#include "results/record.h"

#include "harness/core/json.h"
#include "harness/core/options.h"
#include "results/hash.h"
#include "results/jcs.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* A caller reads strings as C strings: what hides behind a NUL must not be signed unseen. */
static bool holds_nul(const json_t *v) {
    if (json_is_string(v))
        return strlen(json_string_value(v)) != json_string_length(v);
    if (json_is_array(v)) {
        for (size_t i = 0; i < json_array_size(v); i++)
            if (holds_nul(json_array_get(v, i)))
                return true;
    } else if (json_is_object(v)) {
        json_t *o = (json_t *)(uintptr_t)v;
        for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it))
            if (holds_nul(json_object_iter_value(it)))
                return true;
    }
    return false;
}

/* Relative, with '/' and without "..": a name that cannot leave the directory it is unpacked in. */
static bool name_is_safe(const char *s) {
    if (!*s || *s == '/' || strchr(s, '\\'))
        return false;
    for (const char *p = s; p; p = strchr(p, '/')) {
        p += *p == '/';
        size_t n = strcspn(p, "/");
        if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return false;
    }
    return true;
}

static int check_subject(const json_t *list, size_t i, struct err *e) {
    const json_t *s = json_array_get(list, i);
    const char *name = json_string_value(json_object_get(s, "name"));
    const char *hex = json_string_value(json_object_get(json_object_get(s, "digest"), "sha256"));
    unsigned char digest[32];
    if (!name || !name_is_safe(name))
        return err_set(e, ASSAY_EINPUT, "record: at /subject/%zu/name: expected a relative path",
                       i);
    if (!hex || strlen(hex) != 64 || hex_decode(hex, 32, digest))
        return err_set(e, ASSAY_EINPUT,
                       "record: at /subject/%zu/digest/sha256: expected 64 lower-case hex digits",
                       i);
    for (size_t k = 0; k < i; k++)
        if (strcmp(name, json_string_value(json_object_get(json_array_get(list, k), "name"))) == 0)
            return err_set(e, ASSAY_EINPUT, "record: at /subject/%zu/name: '%s' occurs twice", i,
                           name);
    return 0;
}

static int check_type(const json_t *o, const char *name, const char *want, struct err *e) {
    const json_t *v = json_object_get(o, name);
    char found[48];
    if (json_is_string(v) && strcmp(json_string_value(v), want) == 0)
        return 0;
    json_excerpt(v, found, sizeof found);
    return err_set(e, ASSAY_EINPUT, "record: at /%s: expected '%s', found %s", name, want, found);
}

int record_parse(const void *payload, size_t n, json_t **statement, const json_t **predicate,
                 struct err *e) {
    enum { SUBJECTS_MAX = 64 };
    json_t *s;
    *statement = NULL;
    if (predicate)
        *predicate = NULL;
    int rc = jcs_parse(payload, n, "record", &s, e);
    if (rc)
        return rc;
    const json_t *list = json_object_get(s, "subject");
    if (!json_is_object(s))
        rc = err_set(e, ASSAY_EINPUT, "record: expected an object, found %s", json_kind(s));
    else if (holds_nul(s))
        rc = err_set(e, ASSAY_EINPUT, "record: a string holds U+0000");
    else if (!(rc = check_type(s, "_type", RECORD_STATEMENT_TYPE, e)) &&
             !(rc = check_type(s, "predicateType", RECORD_PREDICATE_TYPE, e))) {
        if (!json_is_array(list) || !json_array_size(list) || json_array_size(list) > SUBJECTS_MAX)
            rc = err_set(e, ASSAY_EINPUT, "record: at /subject: expected an array of 1 to %d",
                         (int)SUBJECTS_MAX);
        else if (!json_is_object(json_object_get(s, "predicate")))
            rc = err_set(e, ASSAY_EINPUT, "record: at /predicate: expected an object, found %s",
                         json_kind(json_object_get(s, "predicate")));
    }
    for (size_t i = 0; !rc && i < json_array_size(list); i++)
        rc = check_subject(list, i, e);
    if (rc) {
        json_decref(s);
        return rc;
    }
    *statement = s;
    if (predicate)
        *predicate = json_object_get(s, "predicate");
    return 0;
}

int record_subject(const json_t *statement, const char *name, unsigned char digest[32],
                   struct err *e) {
    const json_t *list = json_object_get(statement, "subject");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *s = json_array_get(list, i);
        const char *at = json_string_value(json_object_get(s, "name"));
        const char *hex =
            json_string_value(json_object_get(json_object_get(s, "digest"), "sha256"));
        if (at && strcmp(at, name) == 0 && hex && hex_decode(hex, 32, digest) == 0)
            return 0;
    }
    return err_set(e, ASSAY_EINPUT, "record: there is no subject '%s'", name);
}

/* ---- facts ---- */

static int fact_i64(const json_t *facts, const char *name, bool text, int64_t *out, struct err *e) {
    const json_t *v = json_object_get(facts, name);
    if (json_is_integer(v) && !text)
        *out = json_integer_value(v);
    else if (!json_is_string(v) || parse_i64(json_string_value(v), out))
        return err_set(e, ASSAY_EINPUT, "record: at /predicate/facts/%s: expected %s, found %s",
                       name, text ? "a decimal string" : "an integer", json_kind(v));
    if (*out < 0)
        return err_set(e, ASSAY_EINPUT, "record: at /predicate/facts/%s: it is negative", name);
    return 0;
}

static int fact_f64(const json_t *facts, const char *name, double *out, struct err *e) {
    const json_t *v = json_object_get(facts, name);
    if (json_is_number(v))
        *out = json_number_value(v);
    else if (!json_is_string(v) || parse_f64(json_string_value(v), out))
        return err_set(e, ASSAY_EINPUT,
                       "record: at /predicate/facts/%s: expected a number, found %s", name,
                       json_kind(v));
    if (!isfinite(*out) || *out < 0)
        return err_set(e, ASSAY_EINPUT, "record: at /predicate/facts/%s: it is negative", name);
    return 0;
}

int record_facts(const json_t *predicate, struct metrics_facts *f, struct err *e) {
    const json_t *o = json_object_get(predicate, "facts");
    *f = (struct metrics_facts){0};
    if (!json_is_object(o))
        return err_set(e, ASSAY_EINPUT, "record: at /predicate/facts: expected an object, found %s",
                       json_kind(o));
    int rc;
    if ((rc = fact_i64(o, "chips", false, &f->chips, e)) ||
        (rc = fact_f64(o, "peakFlopsPerS", &f->peak_flops_per_s, e)) ||
        (rc = fact_f64(o, "flopsPerToken", &f->flops_per_token, e)) ||
        (rc = fact_i64(o, "limitTtftNs", true, &f->limit_ttft_ns, e)) ||
        (rc = fact_i64(o, "limitTpotNs", true, &f->limit_tpot_ns, e)) ||
        (rc = fact_i64(o, "limitE2eNs", true, &f->limit_e2e_ns, e)) ||
        (rc = fact_i64(o, "maxConcurrency", false, &f->max_concurrency, e)))
        return rc;
    return 0;
}
