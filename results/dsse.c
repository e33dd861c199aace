/* DSSE v1.0.2: pre-authentication encoding, the JSON form both ways, signing and verifying. What
 * the payload says is not looked at here; who may sign is the caller's list of keys. */
#include "results/dsse.h"

#include "harness/core/json.h"
#include "results/hash.h"
#include "results/jcs.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Base64 of the largest payload, 16 signatures, and room for members we do not know. */
enum { DSSE_TEXT_MAX_BYTES = 2 * 1024 * 1024 };

void dsse_pae(const char *type, size_t type_n, const void *body, size_t n, struct buf *out) {
    buf_printf(out, "DSSEv1 %zu ", type_n);
    buf_put(out, type, type_n);
    buf_printf(out, " %zu ", n);
    buf_put(out, body, n);
}

static int pae(const char *type, const void *body, size_t n, struct buf *out, struct err *e) {
    buf_init(out, DSSE_PAYLOAD_MAX_BYTES + 512);
    dsse_pae(type, strlen(type), body, n, out);
    int rc = buf_check(out, "the payload", e);
    if (rc)
        buf_release(out);
    return rc;
}

void dsse_release(struct dsse *d) {
    buf_release(&d->payload);
    d->nsig = 0;
}

static int parse_signature(const json_t *v, int i, const char *name, struct dsse_signature *s,
                           struct err *e) {
    const json_t *sig = json_object_get(v, "sig"), *keyid = json_object_get(v, "keyid");
    if (!json_is_string(sig))
        return err_set(e, ASSAY_EINPUT, "%s: at /signatures/%d/sig: expected a string, found %s",
                       name, i, json_kind(sig));
    if (keyid && !json_is_string(keyid))
        return err_set(e, ASSAY_EINPUT, "%s: at /signatures/%d/keyid: expected a string, found %s",
                       name, i, json_kind(keyid));
    *s = (struct dsse_signature){0};
    /* A hint that is not of our form cannot name one of our keys: as good as absent. */
    if (keyid && json_string_length(keyid) < sizeof s->keyid)
        memcpy(s->keyid, json_string_value(keyid), json_string_length(keyid));
    struct buf b;
    buf_init(&b, 64);
    int rc = base64_decode(json_string_value(sig), json_string_length(sig), &b, e);
    if (rc)
        err_wrap(e, "%s: at /signatures/%d/sig", name, i);
    else if (b.n != 64)
        rc = err_set(e, ASSAY_EINPUT,
                     "%s: at /signatures/%d/sig: expected an Ed25519 signature of 64 bytes, "
                     "found %zu",
                     name, i, b.n);
    else
        memcpy(s->sig, b.p, 64);
    buf_release(&b);
    return rc;
}

int dsse_parse(const char *text, size_t n, const char *name, struct dsse *out, struct err *e) {
    *out = (struct dsse){0};
    buf_init(&out->payload, DSSE_PAYLOAD_MAX_BYTES);
    if (n > DSSE_TEXT_MAX_BYTES)
        return err_set(e, ASSAY_EINPUT, "%s: %zu bytes are more than the limit of %d", name, n,
                       (int)DSSE_TEXT_MAX_BYTES);
    json_t *root = NULL;
    int rc = json_parse(text, n, name, &root, e);
    if (rc)
        return rc;
    const json_t *type = json_object_get(root, "payloadType");
    const json_t *payload = json_object_get(root, "payload");
    const json_t *sigs = json_object_get(root, "signatures");
    if (!json_is_object(root)) {
        rc = err_set(e, ASSAY_EINPUT, "%s: expected an object, found %s", name, json_kind(root));
        goto out;
    }
    if (!json_is_string(type) || json_string_length(type) >= sizeof out->payload_type) {
        rc = err_set(e, ASSAY_EINPUT,
                     "%s: at /payloadType: expected a string of at most %zu bytes, found %s", name,
                     sizeof out->payload_type - 1, json_kind(type));
        goto out;
    }
    if (!json_is_string(payload)) {
        rc = err_set(e, ASSAY_EINPUT, "%s: at /payload: expected a string, found %s", name,
                     json_kind(payload));
        goto out;
    }
    if (!json_is_array(sigs) || json_array_size(sigs) == 0 ||
        json_array_size(sigs) > DSSE_SIGNATURES_MAX) {
        rc = err_set(e, ASSAY_EINPUT, "%s: at /signatures: expected an array of 1 to %d, found %s",
                     name, (int)DSSE_SIGNATURES_MAX, json_kind(sigs));
        goto out;
    }
    memcpy(out->payload_type, json_string_value(type), json_string_length(type));
    if (base64_decode(json_string_value(payload), json_string_length(payload), &out->payload, e)) {
        rc = err_wrap(e, "%s: at /payload", name);
        goto out;
    }
    buf_put(&out->payload, "", 0); /* an empty payload gets its terminator too */
    for (size_t i = 0; !rc && i < json_array_size(sigs); i++)
        rc = parse_signature(json_array_get(sigs, i), (int)i, name, &out->sig[i], e);
    out->nsig = (int)json_array_size(sigs);
out:
    json_decref(root);
    if (rc)
        dsse_release(out);
    return rc;
}

int dsse_sign(const char *payload_type, const void *payload, size_t n, const struct secret_key *k,
              struct dsse_signature *out, struct err *e) {
    struct buf b;
    int rc = pae(payload_type, payload, n, &b, e);
    if (rc)
        return rc;
    *out = (struct dsse_signature){0};
    memcpy(out->keyid, secret_key_public(k)->keyid, sizeof out->keyid);
    key_sign(k, b.p, b.n, out->sig);
    buf_release(&b);
    return 0;
}

/* The keyid only says which signatures to try first. */
static bool signed_by(const struct dsse *d, const struct public_key *k, const struct buf *message) {
    for (int hinted = 1; hinted >= 0; hinted--)
        for (int i = 0; i < d->nsig; i++)
            if ((strcmp(d->sig[i].keyid, k->keyid) == 0) == hinted &&
                key_verify(k, message->p, message->n, d->sig[i].sig))
                return true;
    return false;
}

int dsse_verify(const struct dsse *d, const struct public_key *trusted, int ntrusted, bool *matched,
                int *distinct, struct err *e) {
    *distinct = 0;
    struct buf b;
    int rc = pae(d->payload_type, d->payload.p, d->payload.n, &b, e);
    if (rc)
        return rc;
    for (int i = 0; i < ntrusted; i++) {
        bool seen = false; /* the same key listed twice counts once */
        for (int j = 0; j < i && !seen; j++)
            if (memcmp(trusted[i].raw, trusted[j].raw, sizeof trusted[i].raw) == 0) {
                seen = true;
                matched[i] = matched[j];
            }
        if (seen)
            continue;
        matched[i] = signed_by(d, &trusted[i], &b);
        *distinct += matched[i];
    }
    buf_release(&b);
    return 0;
}

int dsse_print(const char *payload_type, const void *payload, size_t n,
               const struct dsse_signature *sig, int nsig, struct buf *out, struct err *e) {
    if (nsig < 1 || nsig > DSSE_SIGNATURES_MAX || n > DSSE_PAYLOAD_MAX_BYTES)
        return err_set(e, ASSAY_EINPUT,
                       "cannot write an envelope of %zu bytes with %d signatures: the limits are "
                       "%d and 1 to %d",
                       n, nsig, (int)DSSE_PAYLOAD_MAX_BYTES, (int)DSSE_SIGNATURES_MAX);
    json_t *type = json_string(payload_type);
    int rc = type ? 0 : err_set(e, ASSAY_EINPUT, "the payload type is not valid UTF-8");
    if (rc)
        return rc;
    /* Members in canonical order; base64 needs no escapes. */
    buf_puts(out, "{\"payload\":\"");
    base64_encode(payload, n, out);
    buf_puts(out, "\",\"payloadType\":");
    rc = jcs_encode(type, out, e);
    json_decref(type);
    buf_puts(out, ",\"signatures\":[");
    for (int i = 0; !rc && i < nsig; i++) {
        json_t *keyid = json_string(sig[i].keyid);
        if (!keyid)
            return err_set(e, ASSAY_EINPUT, "a key id is not valid UTF-8");
        buf_puts(out, i ? ",{\"keyid\":" : "{\"keyid\":");
        rc = jcs_encode(keyid, out, e);
        json_decref(keyid);
        buf_puts(out, ",\"sig\":\"");
        base64_encode(sig[i].sig, 64, out);
        buf_puts(out, "\"}");
    }
    buf_puts(out, "]}");
    return rc ? rc : buf_check(out, "the envelope", e);
}
