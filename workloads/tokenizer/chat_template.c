/* Recognising a chat template, and rendering its family. */
#include "workloads/tokenizer/chat_internal.h"
#include "workloads/tokenizer/unicode_internal.h"

#include "harness/core/json.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEMPLATE_MAX_BYTES = 1024 * 1024, CONFIG_MAX_BYTES = 64 * 1024 * 1024, PATH_BYTES = 4096 };

const char *chat_template_name_at(size_t i) {
    return i < chat_nfamilies ? chat_families[i].name : NULL;
}

const char *chat_template_name(const struct chat_template *t) {
    return t->name;
}

static void all_names(char *out, size_t bytes) {
    size_t n = 0;
    for (size_t i = 0; i < chat_nfamilies && n < bytes; i++)
        n += (size_t)snprintf(out + n, bytes - n, "%s%s", i ? ", " : "", chat_families[i].name);
}

int chat_template_named(const char *name, const struct chat_template **out, struct err *e) {
    char names[256];
    *out = NULL;
    for (size_t i = 0; i < chat_nfamilies; i++)
        if (!strcmp(chat_families[i].name, name)) {
            *out = &chat_families[i];
            return 0;
        }
    all_names(names, sizeof names);
    return err_set(e, ASSAY_EUSAGE, "no chat template is called '%.40s'; there are %s", name,
                   names);
}

static bool marked(const struct chat_template *t, const char *source, size_t n) {
    for (size_t i = 0; i < CHAT_MARKS_MAX && t->marks[i]; i++)
        if (!memmem(source, n, t->marks[i], strlen(t->marks[i])))
            return false;
    return t->marks[0];
}

int chat_template_of_source(const char *source, size_t n, const char *where,
                            const struct chat_template **out, struct err *e) {
    unsigned char digest[32];
    char hex[65], names[256];
    *out = NULL;
    while (n && strchr(" \t\r\n", source[n - 1])) /* Jinja drops it after a block, too */
        n--;
    if (!EVP_Digest(source, n, digest, NULL, EVP_sha256(), NULL))
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    for (int i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    for (size_t i = 0; i < chat_nfamilies && !*out; i++)
        for (size_t k = 0; k < CHAT_DIGESTS_MAX && chat_families[i].digests[k]; k++)
            if (!strcmp(chat_families[i].digests[k], hex))
                *out = &chat_families[i];
    for (size_t i = 0; i < chat_nfamilies && !*out; i++)
        if (marked(&chat_families[i], source, n))
            *out = &chat_families[i];
    if (*out)
        return 0;
    all_names(names, sizeof names);
    return err_set(e, ASSAY_EINPUT,
                   "%s: expected the chat template of %s, found another, with sha256 %.16s…; a "
                   "family can be named instead",
                   where, names, hex);
}

/* The template of a tokenizer_config.json: a text, or a list of named ones with a default. */
static int of_config(const char *path, const struct chat_template **out, struct err *e) {
    struct buf b;
    json_error_t je;
    int rc = buf_read_file(&b, path, CONFIG_MAX_BYTES, e);
    if (rc)
        return rc;
    /* model_max_length is often 1e30 written as an integer */
    json_t *root = json_loadb(b.p ? b.p : "", b.n, JSON_DECODE_INT_AS_REAL, &je);
    buf_release(&b);
    if (!root)
        return err_set(e, ASSAY_EINPUT, "%s:%d:%d: %s", path, je.line, je.column, je.text);
    const json_t *t = json_object_get(root, "chat_template"), *one;
    char where[PATH_BYTES + 32], found[64];
    snprintf(where, sizeof where, "%s: at /chat_template", path);
    for (size_t i = 0; json_is_array(t) && i < json_array_size(t); i++) {
        one = json_array_get(t, i);
        const char *name = json_string_value(json_object_get(one, "name"));
        if (name && !strcmp(name, "default")) {
            t = json_object_get(one, "template");
            break;
        }
    }
    if (json_is_string(t))
        rc = chat_template_of_source(json_string_value(t), json_string_length(t), where, out, e);
    else if (t && !json_is_null(t)) {
        json_excerpt(t, found, sizeof found);
        rc = err_set(e, ASSAY_EINPUT,
                     "%s: expected a string, or a list with one named default; found %s", where,
                     found);
    }
    json_decref(root);
    return rc;
}

static int of_jinja(const char *path, const struct chat_template **out, struct err *e) {
    struct buf b;
    int rc = buf_read_file(&b, path, TEMPLATE_MAX_BYTES, e);
    if (!rc)
        rc = chat_template_of_source(b.p ? b.p : "", b.n, path, out, e);
    buf_release(&b);
    return rc;
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), k = strlen(end);
    return n >= k && !strcmp(s + n - k, end);
}

int chat_template_load(const char *path, const struct chat_template **out, struct err *e) {
    char file[PATH_BYTES];
    struct stat st;
    *out = NULL;
    if (stat(path, &st))
        return err_set(e, ASSAY_EINPUT, "cannot open '%s': no such file", path);
    if (S_ISREG(st.st_mode) && ends_with(path, ".jinja"))
        return of_jinja(path, out, e);
    if (S_ISREG(st.st_mode) && ends_with(path, "tokenizer_config.json"))
        return of_config(path, out, e);
    const char *slash = strrchr(path, '/');
    int folder = S_ISDIR(st.st_mode) ? (int)strlen(path) : slash ? (int)(slash - path) : -1;
    snprintf(file, sizeof file, "%.*s%schat_template.jinja", folder < 0 ? 0 : folder, path,
             folder < 0 ? "" : "/");
    if (!access(file, F_OK))
        return of_jinja(file, out, e);
    snprintf(file, sizeof file, "%.*s%stokenizer_config.json", folder < 0 ? 0 : folder, path,
             folder < 0 ? "" : "/");
    return access(file, F_OK) ? 0 : of_config(file, out, e);
}

/* White space as Python's str.strip sees it. */
static bool is_space(uint32_t c) {
    return unicode_is_space(c) || (c >= 0x1C && c <= 0x1F);
}

static struct str trimmed(struct str s) {
    const uint8_t *p = (const uint8_t *)s.p, *end = p + s.n;
    while (p < end) {
        const uint8_t *next = p;
        if (!is_space(utf8_next(&next)))
            break;
        p = next;
    }
    while (end > p) {
        const uint8_t *last = end - 1;
        while ((*last & 0xC0) == 0x80)
            last--;
        const uint8_t *from = last;
        if (!is_space(utf8_next(&last)))
            break;
        end = from;
    }
    return (struct str){(const char *)p, (size_t)(end - p)};
}

static struct str less_newlines(struct str s, bool left, bool right) {
    while (left && s.n && *s.p == '\n')
        s.p++, s.n--;
    while (right && s.n && s.p[s.n - 1] == '\n')
        s.n--;
    return s;
}

/* What follows the last `mark` of s, or all of it; *before: what precedes the first. */
static struct str after_last(struct str s, const char *mark, struct str *before) {
    size_t k = strlen(mark);
    struct str rest = s;
    const char *hit;
    *before = s;
    while (rest.n && (hit = memmem(rest.p, rest.n, mark, k))) {
        if (rest.p == s.p)
            before->n = (size_t)(hit - s.p);
        rest.n -= (size_t)(hit - rest.p) + k;
        rest.p = hit + k;
    }
    return rest;
}

static bool is_tool_answer(struct str s) {
    static const char open[] = "<tool_response>", close[] = "</tool_response>";
    enum { OPEN = sizeof open - 1, CLOSE = sizeof close - 1 };
    return s.n >= OPEN && s.n >= CLOSE && !memcmp(s.p, open, OPEN) &&
           !memcmp(s.p + s.n - CLOSE, close, CLOSE);
}

static size_t last_question(const struct chat_message *m, size_t n) {
    for (size_t i = n; i-- > 0;)
        if (m[i].role == CHAT_USER && !is_tool_answer(m[i].text))
            return i;
    return n - 1;
}

/* An assistant's text, with its thoughts where the family keeps them. */
static void put_answer(const struct chat_template *t, struct str s, bool after_question, bool last,
                       struct buf *out) {
    struct str before, thought = {"", 0};
    if (t->rules & CHAT_THOUGHT_DROPPED && memmem(s.p, s.n, "</think>", 8)) {
        s = after_last(s, "</think>", &before);
        if (t->rules & CHAT_THOUGHT_LAST) {
            struct str ignored;
            s = less_newlines(s, true, false);
            thought = after_last(less_newlines(before, false, true), "<think>", &ignored);
            thought = less_newlines(thought, true, false);
        }
    }
    if (t->rules & CHAT_THOUGHT_LAST && after_question && (last || thought.n)) {
        thought = less_newlines(thought, true, true);
        s = less_newlines(s, true, false);
        buf_puts(out, "<think>\n");
        buf_put(out, thought.p, thought.n);
        buf_puts(out, "\n</think>\n\n");
    }
    if (t->rules & CHAT_TRIM)
        s = trimmed(s);
    buf_put(out, s.p, s.n);
}

static void put_start(const struct chat_template *t, const char *date, struct buf *out) {
    const char *hole = strstr(t->start, "{date}");
    size_t n = hole ? (size_t)(hole - t->start) : strlen(t->start);
    buf_put(out, t->start, n);
    if (hole) {
        buf_puts(out, date);
        buf_puts(out, hole + strlen("{date}"));
    }
}

static void put_around(const char *open, struct str s, const char *close, struct buf *out) {
    buf_puts(out, open);
    buf_put(out, s.p, s.n);
    buf_puts(out, close);
}

static void put_gathered(const struct chat_template *t, const struct chat_message *m, size_t n,
                         struct buf *out) {
    bool first = true;
    buf_puts(out, t->system_open);
    for (size_t i = 0; i < n; i++)
        if (m[i].role == CHAT_SYSTEM) {
            buf_puts(out, first ? "" : "\n\n");
            buf_put(out, m[i].text.p, m[i].text.n);
            first = false;
        }
    buf_puts(out, t->system_close);
}

/* The first user message, opened by the system's text. */
static void put_joined(const struct chat_template *t, struct str system, struct str s,
                       struct buf *out) {
    size_t from;
    buf_puts(out, t->user_open);
    from = out->n;
    put_around(t->system_open, system, t->system_close, out);
    if (!(t->rules & CHAT_SYSTEM_TRIMMED) && t->rules & CHAT_TRIM)
        s = trimmed(s);
    buf_put(out, s.p, s.n);
    if (t->rules & CHAT_SYSTEM_TRIMMED && !out->failed) {
        struct str whole = trimmed((struct str){out->p + from, out->n - from});
        memmove(out->p + from, whole.p, whole.n);
        out->n = from + whole.n;
    }
    buf_puts(out, t->user_close);
}

static int refuse(const struct chat_template *t, size_t i, const char *what, struct err *e) {
    return err_set(e, ASSAY_EINPUT, "message %zu: the chat template of %s %s", i + 1, t->name,
                   what);
}

static int check(const struct chat_template *t, const struct chat_message *m, size_t n,
                 struct err *e) {
    size_t turn = 0;
    if (!n)
        return err_set(e, ASSAY_EUSAGE, "a chat without messages");
    for (size_t i = 0; i < n; i++) {
        bool system = m[i].role == CHAT_SYSTEM, gathered = t->rules & CHAT_SYSTEM_GATHERED;
        if (system && !i && !t->system_open)
            return refuse(t, i, "takes no system message", e);
        if (system && i && !gathered && !t->later_open)
            return refuse(t, i, "takes a system message as the first only", e);
        if (system)
            continue;
        if (t->rules & CHAT_ALTERNATE && (m[i].role == CHAT_USER) != (turn % 2 == 0))
            return refuse(t, i, "wants user and assistant by turns, the user first", e);
        turn++;
    }
    return 0;
}

int chat_template_render(const struct chat_template *t, const struct chat_message *m, size_t n,
                         unsigned flags, const char *date, struct buf *out, struct err *e) {
    int rc = check(t, m, n, e);
    if (rc)
        return rc;
    size_t i = 0, question = last_question(m, n);
    bool system = m[0].role == CHAT_SYSTEM, trim = t->rules & CHAT_TRIM;
    struct str first = system ? m[0].text : (struct str){t->system_default, 0};
    put_start(t, date, out);
    if (t->rules & CHAT_SYSTEM_GATHERED)
        put_gathered(t, m, n, out);
    else if (system) {
        i = 1;
        if (!(t->rules & CHAT_SYSTEM_IN_USER) && !(t->rules & CHAT_SYSTEM_UNLESS_EMPTY && !first.n))
            put_around(t->system_open, trim ? trimmed(first) : first, t->system_close, out);
    } else if (t->system_default) {
        first.n = strlen(t->system_default);
        put_around(t->system_open, first, t->system_close, out);
    }
    bool join = system && t->rules & CHAT_SYSTEM_IN_USER;
    for (; i < n; i++) {
        struct str s = m[i].text;
        bool last = i + 1 == n, ends = last && !(flags & CHAT_RENDER_GENERATION);
        switch (m[i].role) {
        case CHAT_SYSTEM:
            if (!(t->rules & CHAT_SYSTEM_GATHERED))
                put_around(t->later_open, trim ? trimmed(s) : s, t->system_close, out);
            break;
        case CHAT_USER:
            if (join)
                put_joined(t, first, s, out);
            else
                put_around(t->user_open, trim ? trimmed(s) : s, t->user_close, out);
            join = false;
            break;
        case CHAT_ASSISTANT:
            buf_puts(out, t->assistant_open);
            put_answer(t, s, i > question, last, out);
            buf_puts(out, ends && t->assistant_end ? t->assistant_end : t->assistant_close);
            break;
        }
    }
    if (flags & CHAT_RENDER_GENERATION)
        buf_puts(out, t->generation);
    return buf_check(out, "a chat", e);
}
