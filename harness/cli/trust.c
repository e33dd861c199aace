/* The key folders. Files only: what a key may sign for is the verifier's business. */
#include "harness/cli/trust.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *trust_role_name(enum trust_role r) {
    static const char *const names[] = {"runner", "trusted", "revoked"};
    return names[r];
}

static const char *joined(struct arena *a, const char *x, const char *y, const char *z) {
    size_t n = strlen(x) + strlen(y) + strlen(z) + 1;
    char *s = arena_alloc(a, n, 1);
    if (s)
        snprintf(s, n, "%s%s%s", x, y, z);
    return s;
}

const char *trust_path(struct arena *a, const char *name) {
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    if (data && *data == '/')
        return joined(a, data, "/assay/keys/", name);
    return joined(a, home ? home : "", "/.local/share/assay/keys/", name);
}

static int make_directories(const char *path, struct err *e) {
    char part[4096];
    size_t n = strlen(path);
    if (n >= sizeof part)
        return err_set(e, ASSAY_EENV, "path too long: '%.100s…'", path);
    for (size_t i = 1; i <= n; i++)
        if (path[i] == '/' || path[i] == '\0') {
            memcpy(part, path, i);
            part[i] = '\0';
            if (mkdir(part, 0700) && errno != EEXIST)
                return err_errno(e, ASSAY_EENV, errno, "cannot make the directory '%s'", part);
        }
    return 0;
}

struct key_list {
    struct arena *arena;
    struct trust_key *key;
    int n, cap;
};

static int list_add(struct key_list *l, const struct trust_key *k, struct err *e) {
    if (l->n == TRUST_KEYS_MAX)
        return err_set(e, ASSAY_EENV, "more than %d keys", TRUST_KEYS_MAX);
    if (l->n == l->cap) {
        int cap = l->cap ? 2 * l->cap : 16;
        struct trust_key *grown = arena_alloc(l->arena, (size_t)cap, sizeof *grown);
        if (!grown)
            return err_set(e, ASSAY_ENOMEM, "out of memory");
        if (l->n)
            memcpy(grown, l->key, (size_t)l->n * sizeof *grown);
        l->key = grown;
        l->cap = cap;
    }
    l->key[l->n++] = *k;
    return 0;
}

/* The runner's public half comes from the private file, which its mode protects. */
static int load_runner(struct key_list *l, struct err *e) {
    struct trust_key k = {.role = TRUST_RUNNER, .name = "runner"};
    struct secret_key *secret = NULL;
    k.path = trust_path(l->arena, "runner.pem");
    if (!k.path)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    if (access(k.path, F_OK))
        return 0; /* no run was signed here yet */
    int rc = secret_key_load(k.path, &secret, e);
    if (rc)
        return rc;
    k.key = *secret_key_public(secret);
    secret_key_free(secret);
    return list_add(l, &k, e);
}

static int is_key_file(const struct dirent *d) {
    size_t n = strlen(d->d_name);
    return n > 4 && d->d_name[0] != '.' && !strcmp(d->d_name + n - 4, ".pem");
}

static int load_folder(struct key_list *l, enum trust_role role, struct err *e) {
    const char *dir = trust_path(l->arena, trust_role_name(role));
    if (!dir)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    struct dirent **entry = NULL;
    int n = scandir(dir, &entry, is_key_file, alphasort), rc = 0;
    if (n < 0)
        return errno == ENOENT ? 0 : err_errno(e, ASSAY_EENV, errno, "cannot read '%s'", dir);
    for (int i = 0; i < n; i++) {
        struct trust_key k = {.role = role};
        struct err why = {0};
        const char *file = entry[i]->d_name;
        k.path = joined(l->arena, dir, "/", file);
        k.name = arena_strndup(l->arena, file, strlen(file) - 4);
        if (rc)
            ; /* the list is freed to its end */
        else if (!k.path || !k.name)
            rc = err_set(e, ASSAY_ENOMEM, "out of memory");
        else if (!public_key_load(k.path, &k.key, &why))
            rc = list_add(l, &k, e);
        else if (role == TRUST_REVOKED)
            rc = err_set(e, ASSAY_EENV, "a revoked key cannot be read: %s", why.text);
        else
            fprintf(stderr, "assay: warn: not a key that can be trusted: %s\n", why.text);
        free(entry[i]);
    }
    free(entry);
    return rc;
}

int trust_load(struct arena *a, struct trust_key **keys, int *n, struct err *e) {
    struct key_list l = {.arena = a};
    int rc = load_runner(&l, e);
    if (!rc)
        rc = load_folder(&l, TRUST_TRUSTED, e);
    if (!rc)
        rc = load_folder(&l, TRUST_REVOKED, e);
    *keys = l.key;
    *n = rc ? 0 : l.n;
    return rc;
}

static bool is_revoked(const struct trust_key *keys, int n, const struct public_key *k) {
    for (int i = 0; i < n; i++)
        if (keys[i].role == TRUST_REVOKED && !memcmp(keys[i].key.raw, k->raw, sizeof k->raw))
            return true;
    return false;
}

int trust_select(struct arena *a, const struct trust_key *keys, int n, bool revoked,
                 struct public_key **out, int *nout, struct err *e) {
    *nout = 0;
    *out = arena_alloc(a, (size_t)n + 1, sizeof **out);
    if (!*out)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    for (int i = 0; i < n; i++)
        if (revoked ? keys[i].role == TRUST_REVOKED
                    : keys[i].role != TRUST_REVOKED && !is_revoked(keys, n, &keys[i].key))
            (*out)[(*nout)++] = keys[i].key;
    return 0;
}

/* The whole file or nothing: written beside, synced, renamed. */
static int write_key(struct arena *a, const char *dir, const char *name, const struct public_key *k,
                     const char **path, struct err *e) {
    char pem[160];
    public_key_to_pem(k, pem);
    int rc = make_directories(dir, e);
    if (rc)
        return rc;
    *path = joined(a, dir, "/", joined(a, name, ".pem", ""));
    const char *temporary = joined(a, dir, "/.new-", name);
    if (!*path || !temporary)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_errno(e, ASSAY_EENV, errno, "cannot write '%s'", temporary);
    size_t n = strlen(pem);
    bool failed = write(fd, pem, n) != (ssize_t)n || fsync(fd) != 0;
    failed |= close(fd) != 0;
    if (failed || rename(temporary, *path)) {
        rc = err_errno(e, ASSAY_EENV, errno, "cannot write '%s'", *path);
        unlink(temporary);
    }
    return rc;
}

static bool is_plain_name(const char *s) {
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    return n && !s[n] && n < 128 && *s != '.';
}

int trust_add(struct arena *a, const char *file, const char *name, const char **path,
              struct err *e) {
    struct trust_key *keys;
    struct public_key k;
    int n, rc = public_key_load(file, &k, e);
    if (!rc)
        rc = trust_load(a, &keys, &n, e);
    if (rc)
        return rc;
    if (!is_plain_name(name))
        return err_set(e, ASSAY_EUSAGE,
                       "expected a name of letters, digits, '.', '_' and '-', found '%s'", name);
    if (is_revoked(keys, n, &k))
        return err_set(e, ASSAY_ENEGATIVE, "key %s is revoked here", k.keyid);
    for (int i = 0; i < n; i++) {
        bool same = !memcmp(keys[i].key.raw, k.raw, sizeof k.raw);
        if (keys[i].role != TRUST_TRUSTED)
            continue;
        if (same && strcmp(keys[i].name, name) != 0)
            return err_set(e, ASSAY_EUSAGE, "key %s is trusted already, as '%s'", k.keyid,
                           keys[i].name);
        if (!same && !strcmp(keys[i].name, name))
            return err_set(e, ASSAY_EUSAGE, "'%s' is the name of another trusted key, %s", name,
                           keys[i].key.keyid);
    }
    const char *dir = trust_path(a, trust_role_name(TRUST_TRUSTED));
    return dir ? write_key(a, dir, name, &k, path, e) : err_set(e, ASSAY_ENOMEM, "out of memory");
}

static bool refers_to(const char *ref, const struct trust_key *k) {
    enum { LEAST_DIGITS = 8 };
    static const char prefix[] = "sha256:";
    if (!strcmp(ref, k->name))
        return true;
    const char *hex = !strncmp(ref, prefix, sizeof prefix - 1) ? ref + sizeof prefix - 1 : ref;
    size_t n = strlen(hex);
    return n >= LEAST_DIGITS && !strncmp(k->key.keyid + sizeof prefix - 1, hex, n);
}

int trust_revoke(struct arena *a, const char *ref, struct trust_key *out, struct err *e) {
    struct trust_key *keys;
    int n, found = -1, rc = trust_load(a, &keys, &n, e);
    if (rc)
        return rc;
    for (int i = 0; i < n; i++) {
        if (!refers_to(ref, &keys[i]) || keys[i].role == TRUST_REVOKED)
            continue;
        if (found >= 0 && memcmp(keys[i].key.raw, keys[found].key.raw, sizeof keys[i].key.raw) != 0)
            return err_set(e, ASSAY_EUSAGE, "'%s' names more than one key", ref);
        found = i;
    }
    if (found < 0)
        return err_set(e, ASSAY_EUSAGE, "no key here is called '%s'; 'assay key list' names all",
                       ref);
    *out = keys[found];
    const char *dir = trust_path(a, trust_role_name(TRUST_REVOKED));
    const char *path = NULL;
    if (!dir)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    /* named by its id: names may come again, a revocation stays. First written there, then removed
     * here: between the two it counts as revoked. */
    rc = write_key(a, dir, out->key.keyid + 7, &out->key, &path, e);
    if (rc)
        return rc;
    if (out->role == TRUST_TRUSTED && unlink(out->path))
        return err_errno(e, ASSAY_EENV, errno, "revoked, but cannot remove '%s'", out->path);
    out->path = path;
    out->role = TRUST_REVOKED;
    return 0;
}
