/* `assay key`: a home without keys, made, trusted and revoked ones. Key ids are checked against
 * openssl's own digest of the public key where openssl is there. */
#include "tests/cli/child.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(cli_key, .fini = child_home_remove);

static json_t *keys(void) {
    const struct child *c = assay("key list --json");
    cr_assert(eq(int, c->status, 0));
    json_t *v = child_object(c);
    json_t *list = json_object_get(v, "keys");
    cr_assert(eq(int, json_is_array(list), 1));
    return v;
}

static const char *member(const json_t *v, size_t i, const char *name) {
    return json_string_value(json_object_get(json_array_get(json_object_get(v, "keys"), i), name));
}

Test(cli_key, life_of_a_key) {
    char args[512], alice[256];
    json_t *v = keys();
    cr_assert(eq(sz, json_array_size(json_object_get(v, "keys")), 0));
    json_decref(v);

    const struct child *c = assay("key new");
    cr_assert(eq(int, c->status, 0));
    cr_assert(eq(int, strncmp(c->out, "sha256:", 7), 0));
    char runner[80];
    snprintf(runner, sizeof runner, "%.71s", c->out);
    cr_assert(eq(int, assay("key new")->status, 2)); /* never overwritten */

    snprintf(alice, sizeof alice, "%s/alice.pem", child_home());
    snprintf(args, sizeof args, "key new %s", alice);
    cr_assert(eq(int, assay(args)->status, 0));
    cr_assert(eq(int, assay(args)->status, 2));
    struct stat st;
    cr_assert(eq(int, stat(alice, &st), 0));
    cr_assert(eq(u32, st.st_mode & 0777, 0600));

    snprintf(args, sizeof args, "key trust %s.pub", alice);
    c = assay(args);
    cr_assert(eq(int, c->status, 0));
    char alice_id[80];
    snprintf(alice_id, sizeof alice_id, "%.71s", c->out);
    cr_assert(eq(int, assay(args)->status, 0)); /* again: nothing changes */
    snprintf(args, sizeof args, "key trust %s.pub --name ../bob", alice);
    cr_assert(eq(int, assay(args)->status, 2));

    v = keys();
    cr_assert(eq(sz, json_array_size(json_object_get(v, "keys")), 2));
    cr_assert(eq(str, (char *)member(v, 0, "role"), "runner"));
    cr_assert(eq(str, (char *)member(v, 0, "keyid"), runner));
    cr_assert(eq(str, (char *)member(v, 1, "role"), "trusted"));
    cr_assert(eq(str, (char *)member(v, 1, "name"), "alice"));
    cr_assert(eq(str, (char *)member(v, 1, "keyid"), alice_id));
    json_decref(v);

    snprintf(args, sizeof args, "key revoke %.16s", alice_id);
    cr_assert(eq(int, assay(args)->status, 0));
    cr_assert(eq(int, assay(args)->status, 2)); /* it is no longer there to be revoked */
    v = keys();
    cr_assert(eq(sz, json_array_size(json_object_get(v, "keys")), 2));
    cr_assert(eq(str, (char *)member(v, 1, "role"), "revoked"));
    json_decref(v);
    snprintf(args, sizeof args, "key trust %s.pub", alice);
    c = assay(args);
    cr_assert(eq(int, c->status, 1)); /* a revocation stays */
    CHECK(strstr(c->err, "is revoked here"), "%s", c->err);
}

Test(cli_key, ids_are_digests_of_the_public_key) {
    if (access("/usr/bin/openssl", X_OK))
        cr_skip_test("there is no openssl");
    const struct child *c = assay("key new");
    char line[600], id[80], want[80] = "sha256:";
    snprintf(id, sizeof id, "%.71s", c->out);
    snprintf(line, sizeof line,
             "openssl pkey -in %s/assay/keys/runner.pem -pubout -outform DER | openssl dgst -sha256 -r",
             child_home());
    FILE *p = popen(line, "r");
    cr_assert(eq(sz, fread(want + 7, 1, 64, p), 64));
    pclose(p);
    cr_assert(eq(str, id, want));
}

Test(cli_key, wrong_use) {
    static const struct {
        const char *args, *says;
        int status;
    } uses[] = {
        {"key", "expected new [FILE] | list", 2},
        {"key rvoke", "did you mean 'revoke'?", 2},
        {"key list more", "expected nothing more", 2},
        {"key trust", "expected FILE", 2},
        {"key revoke", "expected KEYID or NAME", 2},
        {"key revoke nobody", "no key here is called 'nobody'", 2},
        {"key trust /nonexistent.pem", "/nonexistent.pem", 2},
        {"key trust /dev/null", "/dev/null", 2},
    };
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        const struct child *c = assay(uses[i].args);
        cr_assert(eq(int, c->status, uses[i].status), "assay %s: %s", uses[i].args, c->err);
        CHECK(strstr(c->err, uses[i].says), "assay %s: %s", uses[i].args, c->err);
        cr_assert(eq(str, (char *)c->out, ""));
    }
}
