/* `assay key`: makes, lists, trusts and revokes keys. Signing is not here. */
#include "harness/cli/args.h"
#include "harness/cli/out.h"
#include "harness/cli/term.h"
#include "harness/cli/trust.h"
#include "harness/cli/verbs.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct key_args {
    struct common c;
    const char *name;
};

// clang-format off
static const struct option key_options[] = {
    {.name = "name", .type = OPT_STR, .offset = offsetof(struct key_args, name), .unit = "NAME",
     .help = "trust: what to call the key; else the file's name"},
    {0},
};
// clang-format on

static int print_key(const struct key_args *a, const char *what, const struct public_key *k,
                     const char *path, struct err *e) {
    if (!a->c.json) {
        printf("%s\n%s\n", k->keyid, path);
        return 0;
    }
    json_t *v = json_pack("{s:s,s:s,s:s}", "done", what, "keyid", k->keyid, "path", path);
    if (!v)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    out_json(v, stdout);
    json_decref(v);
    return 0;
}

static int key_new(struct key_args *a, struct err *e) {
    struct secret_key *k = NULL;
    char path[512];
    bool created = true;
    int rc;
    if (a->c.args.n > 1) {
        snprintf(path, sizeof path, "%s", a->c.args.v[1]);
        if (!access(path, F_OK))
            return err_set(e, ASSAY_EUSAGE,
                           "key new: '%s' is there already; a key is never overwritten", path);
        rc = secret_key_create(path, &k, e);
    } else {
        rc = runner_key_load(NULL, &k, &created, path, sizeof path, e);
    }
    if (!rc && !created)
        rc = err_set(e, ASSAY_EUSAGE, "key new: the runner key '%s' is there already", path);
    if (!rc)
        rc = print_key(a, "new", secret_key_public(k), path, e);
    secret_key_free(k);
    return rc;
}

static int key_list(struct key_args *a, struct err *e) {
    struct trust_key *keys;
    int n, rc = trust_load(&a->c.arena, &keys, &n, e);
    if (rc)
        return rc;
    if (a->c.json) {
        json_t *list = json_array(), *root = json_pack("{s:o}", "keys", list);
        int bad = !root;
        for (int i = 0; i < n && !bad; i++)
            bad = json_array_append_new(list,
                                        json_pack("{s:s,s:s,s:s,s:s}", "keyid", keys[i].key.keyid,
                                                  "role", trust_role_name(keys[i].role), "name",
                                                  keys[i].name, "path", keys[i].path));
        if (!bad)
            out_json(root, stdout);
        json_decref(root);
        return bad ? err_set(e, ASSAY_ENOMEM, "out of memory") : 0;
    }
    static const char *const headings[] = {"role", "name", "key id"};
    struct table t;
    table_init(&t, &a->c.arena, "lll", headings);
    for (int i = 0; i < n; i++) {
        table_cell(&t, trust_role_name(keys[i].role));
        table_cell(&t, keys[i].role == TRUST_REVOKED ? "" : keys[i].name);
        table_cell(&t, keys[i].key.keyid);
    }
    table_print(&t, stdout, 0);
    return 0;
}

/* "keys/alice.pem" and "alice.pem.pub" are alice's. */
static const char *stem(struct arena *a, const char *file) {
    static const char *const suffixes[] = {".pub", ".pem"};
    const char *slash = strrchr(file, '/');
    char *s = arena_strdup(a, slash ? slash + 1 : file);
    for (size_t i = 0; s && i < sizeof suffixes / sizeof *suffixes; i++) {
        size_t n = strlen(s), m = strlen(suffixes[i]);
        if (n > m && !strcmp(s + n - m, suffixes[i]))
            s[n - m] = '\0';
    }
    return s;
}

static int key_trust(struct key_args *a, struct err *e) {
    const char *file = a->c.args.v[1], *path = NULL;
    const char *name = a->name ? a->name : stem(&a->c.arena, file);
    if (!name)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    int rc = trust_add(&a->c.arena, file, name, &path, e);
    if (rc)
        return err_wrap(e, "key trust");
    struct public_key k;
    rc = public_key_load(path, &k, e);
    return rc ? rc : print_key(a, "trust", &k, path, e);
}

static int key_revoke(struct key_args *a, struct err *e) {
    struct trust_key k;
    int rc = trust_revoke(&a->c.arena, a->c.args.v[1], &k, e);
    return rc ? err_wrap(e, "key revoke") : print_key(a, "revoke", &k.key, k.path, e);
}

static const struct {
    const char *name, *wants;
    int args_min, args_max;
    int (*run)(struct key_args *a, struct err *e);
} actions[] = {
    {"list", "nothing more", 0, 0, key_list},
    {"new", "at most a FILE", 0, 1, key_new},
    {"revoke", "KEYID or NAME", 1, 1, key_revoke},
    {"trust", "FILE", 1, 1, key_trust},
};
enum { ACTIONS = sizeof actions / sizeof *actions };

static int run_key(void *options, struct err *e) {
    struct key_args *a = options;
    const char *action = a->c.args.v[0], *names[ACTIONS];
    for (size_t i = 0; i < ACTIONS; i++) {
        names[i] = actions[i].name;
        if (strcmp(action, actions[i].name))
            continue;
        int n = a->c.args.n - 1;
        if (n < actions[i].args_min || n > actions[i].args_max)
            return err_set(e, ASSAY_EUSAGE, "key %s: expected %s", action, actions[i].wants);
        return actions[i].run(a, e);
    }
    char near[256];
    args_near(action, names, ACTIONS, near, sizeof near);
    return err_set(e, ASSAY_EUSAGE, "key: expected new, list, trust or revoke, found '%s'%s",
                   action, near);
}

// clang-format off
const struct verb verb_key = {
    .name = "key",
    .usage = "new [FILE] | list | trust FILE | revoke KEYID",
    .summary = "keys that sign and keys that count",
    .about =
        "'new' makes an Ed25519 key: FILE and FILE.pub, or this machine's runner key, which is "
        "otherwise made by the first run. 'list' names the keys known here. 'trust' copies a public key "
        "(PEM) to the trusted ones: records it signed verify. 'revoke' makes signatures of a key count "
        "no more, this machine's own key included; KEYID may be a name, or a beginning of the id of "
        "eight digits and more.",
    .examples = "assay key list\n"
                "assay key trust lab-a.pem.pub --name lab-a\n"
                "assay key revoke lab-a\n",
    .args_min = 1,
    .args_max = 2,
    .options_size = sizeof(struct key_args),
    .options = (const struct option *const[]){key_options, common_output, NULL},
    .run = run_key,
};
// clang-format on
