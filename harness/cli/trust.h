/* Which keys count on this machine: its own runner key, and the public keys that a person put into
 * $XDG_DATA_HOME/assay/keys/trusted. Keys in keys/revoked never count, whoever's they are. */
#ifndef HARNESS_CLI_TRUST_H
#define HARNESS_CLI_TRUST_H

#include "harness/core/arena.h"
#include "harness/core/err.h"
#include "results/key.h"

enum trust_role { TRUST_RUNNER, TRUST_TRUSTED, TRUST_REVOKED };
const char *trust_role_name(enum trust_role r);

struct trust_key {
    struct public_key key;
    enum trust_role role;
    const char *name; /* of the file, without suffix; arena */
    const char *path; /* arena */
};

enum { TRUST_KEYS_MAX = 1024 };

/* All keys of the machine, runner first, then by role and name. A file that is no key is an error
 * in keys/revoked (a revocation must not be lost) and a warning on stderr in keys/trusted. */
int trust_load(struct arena *a, struct trust_key **keys, int *n, struct err *e) MUST_USE;

/* Those of a role, as the verifier wants them; revoked ones are left out of every other role. */
int trust_select(struct arena *a, const struct trust_key *keys, int n, bool revoked,
                 struct public_key **out, int *nout, struct err *e) MUST_USE;

/* Puts a public key file under trust; name: of the file to be, without suffix. Refused when the key
 * is revoked or the name belongs to another key. *path: where it is now; arena. */
int trust_add(struct arena *a, const char *file, const char *name, const char **path,
              struct err *e) MUST_USE;

/* Revokes by key id, a unique beginning of one (at least 8 hex digits), or name. */
int trust_revoke(struct arena *a, const char *ref, struct trust_key *out, struct err *e) MUST_USE;

/* "…/assay/keys/NAME"; arena, NULL when memory runs out. */
const char *trust_path(struct arena *a, const char *name);

#endif
