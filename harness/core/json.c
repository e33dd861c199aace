/* Parsing with limits and places; paths. */
#include "harness/core/json.h"

#include "harness/core/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int json_parse(const char *text, size_t n, const char *name, json_t **out, struct err *e) {
    json_error_t je;
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
    if (!*out)
        return err_set(e, ASSAY_EINPUT, "%s:%d:%d: %s", name, je.line > 0 ? je.line : 1,
                       je.column > 0 ? je.column : 1, je.text);
    return 0;
}

int json_parse_file(const char *path, json_t **out, struct err *e) {
    struct buf b;
    *out = NULL;
    int rc = buf_read_file(&b, path, JSON_FILE_MAX_BYTES, e);
    if (rc)
        return rc;
    rc = json_parse(b.p, b.n, path, out, e);
    buf_release(&b);
    return rc;
}

const char *json_kind(const json_t *v) {
    if (!v)
        return "nothing";
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    case JSON_NULL:
        return "null";
    }
    return "?";
}

void json_excerpt(const json_t *v, char *out, size_t out_bytes) {
    if (!v) {
        snprintf(out, out_bytes, "nothing");
        return;
    }
    if (json_is_object(v) || json_is_array(v)) {
        snprintf(out, out_bytes, "%s", json_kind(v));
        return;
    }
    char *s = json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    if (s && strlen(s) > 40)
        memcpy(s + 37, "...", 4);
    snprintf(out, out_bytes, "%s", s ? s : "?");
    free(s);
}

int json_set_path(json_t *root, const char *path, const char *value, struct err *e) {
    if (!json_is_object(root))
        return err_set(e, ASSAY_EUSAGE, "cannot set '%s': the document is not an object", path);
    json_t *at = root;
    const char *p = path;
    char name[256];
    for (;;) {
        size_t n = strcspn(p, ".");
        if (n == 0 || n >= sizeof name)
            return err_set(e, ASSAY_EUSAGE, "cannot set '%s': empty or overlong member name", path);
        memcpy(name, p, n);
        name[n] = '\0';
        if (p[n] == '\0')
            break;
        json_t *next = json_object_get(at, name);
        if (!next) {
            next = json_object();
            if (!next || json_object_set_new(at, name, next))
                return err_set(e, ASSAY_ENOMEM, "out of memory");
        } else if (!json_is_object(next)) {
            return err_set(e, ASSAY_EUSAGE, "cannot set '%s': '%s' is %s, not an object", path, name,
                           json_kind(next));
        }
        at = next;
        p += n + 1;
    }
    json_t *v = json_loads(value, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    if (!v)
        v = json_string(value);
    if (!v)
        return err_set(e, ASSAY_EUSAGE, "cannot set '%s': the value is not valid UTF-8", path);
    if (json_object_set_new(at, name, v))
        return err_set(e, ASSAY_EUSAGE, "cannot set '%s': the name is not valid UTF-8", path);
    return 0;
}
