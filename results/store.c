/* Opening and closing the store: where it is, whether the file is ours, what this machine allows
 * with it. Runs are written in store_run.c and log_writer.c, read in store_read.c. */
#include "results/store.h"

#include "results/store_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

static int default_path(char out[PATH_BYTES], struct err *e) {
    const char *db = getenv("ASSAY_DB"), *xdg = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    int n;
    if (db && *db)
        n = snprintf(out, PATH_BYTES, "%s", db);
    else if (xdg && *xdg == '/')
        n = snprintf(out, PATH_BYTES, "%s/assay/assay.db", xdg);
    else if (home && *home)
        n = snprintf(out, PATH_BYTES, "%s/.local/share/assay/assay.db", home);
    else
        return err_set(e, ASSAY_EENV,
                       "no place for the results database: HOME is not set; give --db FILE");
    if (n < 0 || n >= PATH_BYTES)
        return err_set(e, ASSAY_EUSAGE, "the path of the results database is too long");
    return 0;
}

static void parent_of(const char *path, char out[PATH_BYTES]) {
    snprintf(out, PATH_BYTES, "%s", path);
    char *slash = strrchr(out, '/');
    if (!slash)
        snprintf(out, PATH_BYTES, ".");
    else
        slash[slash == out] = '\0';
}

static int make_directories(const char *path, struct err *e) {
    char dir[PATH_BYTES];
    parent_of(path, dir);
    for (char *p = dir + 1;; p++) {
        if (*p && *p != '/')
            continue;
        char old = *p;
        *p = '\0';
        if (mkdir(dir, 0777) && errno != EEXIST && access(dir, F_OK))
            return err_errno(e, ASSAY_EENV, errno, "cannot create the directory '%s'", dir);
        *p = old;
        if (!old)
            return 0;
    }
}

/* WAL needs shared memory and honest locks of one host. */
static const struct {
    uint32_t magic;
    const char *name;
} network_file_systems[] = {
    {NFS_SUPER_MAGIC, "NFS"},   {SMB_SUPER_MAGIC, "SMB"},     {0xFE534D42u, "SMB2"},
    {0xFF534D42u, "CIFS"},      {FUSE_SUPER_MAGIC, "FUSE"},   {V9FS_MAGIC, "9P"},
    {AFS_SUPER_MAGIC, "AFS"},   {AFS_FS_MAGIC, "AFS"},        {CODA_SUPER_MAGIC, "Coda"},
    {CEPH_SUPER_MAGIC, "Ceph"}, {OCFS2_SUPER_MAGIC, "OCFS2"}, {0x0BD00BD0u, "Lustre"},
    {0x47504653u, "GPFS"},      {0x19830326u, "BeeGFS"},
};

const char *store_network_fs(uint32_t magic) {
    for (size_t i = 0; i < sizeof network_file_systems / sizeof network_file_systems[0]; i++)
        if (network_file_systems[i].magic == magic)
            return network_file_systems[i].name;
    return NULL;
}

static const char *network_fs_of(const char *path) {
    char dir[PATH_BYTES];
    struct statfs f;
    parent_of(path, dir);
    if (statfs(path, &f) && statfs(dir, &f))
        return NULL;
    return store_network_fs((uint32_t)f.f_type);
}

struct identity {
    int64_t application_id, version, objects;
};

/* All three in one read transaction: another process may be creating the schema. */
static int identify(struct conn *c, struct identity *id, struct err *e) {
    int rc = sql_exec(c, "BEGIN", e);
    if (!rc)
        rc = sql_get_int(c, e, &id->application_id, NULL, "PRAGMA application_id", "");
    if (!rc)
        rc = sql_get_int(c, e, &id->version, NULL, "PRAGMA user_version", "");
    if (!rc)
        rc = sql_get_int(c, e, &id->objects, NULL, "SELECT count(*) FROM sqlite_schema", "");
    if (!sqlite3_get_autocommit(c->db) && sqlite3_exec(c->db, "COMMIT", NULL, NULL, NULL))
        sql_rollback(c);
    return rc;
}

static int check_identity(const struct conn *c, const struct identity *id, int known,
                          struct err *e) {
    if (id->application_id != STORE_APPLICATION_ID)
        return err_set(
            e, ASSAY_EINPUT,
            "'%s' is a database of another program: expected application id 0x%x, found 0x%" PRIx64,
            c->path, (unsigned)STORE_APPLICATION_ID, (uint64_t)id->application_id);
    if (id->version > known)
        return err_set(e, ASSAY_EINPUT,
                       "'%s' was written by a newer assay: expected schema version %d or older, "
                       "found %" PRId64,
                       c->path, known, id->version);
    return 0;
}

static int open_write(struct store *s, const char *path, int *recovered, struct err *e) {
    struct migration m[MIGRATIONS_MAX];
    struct identity id = {0};
    int n, back = 0;
    int rc = migrations_embedded(m, &n, e);
    if (!rc)
        rc = make_directories(path, e);
    if (rc)
        return rc;
    const char *net = network_fs_of(path);
    if (net)
        return err_set(
            e, ASSAY_EENV,
            "'%s' is on a network file system (%s), which cannot hold the results database "
            "safely: give a local --db FILE or set ASSAY_DB",
            path, net);
    rc = conn_open(&s->c, path, CONN_WRITE | CONN_CREATE, e);
    if (!rc)
        rc = identify(&s->c, &id, e);
    bool fresh = !rc && !id.application_id && !id.version && !id.objects;
    if (!rc && !fresh)
        rc = check_identity(&s->c, &id, n, e);
    if (rc)
        return rc;
    sqlite3_db_config(s->c.db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
    rc = conn_settings(&s->c, true, e);
    if (!rc)
        rc = migrate(&s->c, (int)id.version, m, n, e);
    if (!rc && !fresh)
        rc = metric_defs_seed(&s->c, e);
    if (rc)
        return rc;
    conn_restrict(&s->c);
    rc = lease_open(s, e);
    if (!rc)
        rc = runs_recover(s, &back, e);
    if (recovered)
        *recovered = back;
    return rc;
}

/* Newer databases may be read when they say so. */
static int check_readable(struct conn *c, const struct identity *id, int known, struct err *e) {
    int64_t min = INT64_MAX;
    bool found = false;
    if (id->application_id == STORE_APPLICATION_ID && id->version > known) {
        struct err ignored = {0};
        if (!sql_get_int(c, &ignored, &min, &found,
                         "SELECT CAST(value AS INTEGER) FROM meta WHERE key='min_reader_version'",
                         "") &&
            found && min <= known)
            return 0;
    }
    int rc = check_identity(c, id, known, e);
    if (!rc && id->version < known)
        rc = err_set(e, ASSAY_EINPUT,
                     "'%s' has the older schema version %" PRId64
                     ", expected %d: `assay db migrate` upgrades it",
                     c->path, id->version, known);
    return rc;
}

static int open_read(struct store *s, const char *path, struct err *e) {
    struct migration m[MIGRATIONS_MAX];
    struct identity id = {0};
    struct stat st;
    int n;
    int rc = migrations_embedded(m, &n, e);
    if (rc)
        return rc;
    if (stat(path, &st))
        return err_errno(e, ASSAY_EENV, errno, "cannot open the results database '%s'", path);
    /* Reading in WAL mode needs the -shm file, which a read-only directory or a network file system
     * does not give. The file alone is a consistent state only when no -wal stands beside it. */
    char wal[PATH_BYTES], dir[PATH_BYTES];
    int w = snprintf(wal, sizeof wal, "%s-wal", path);
    if (w < 0 || (size_t)w >= sizeof wal)
        return err_set(e, ASSAY_EUSAGE, "the path '%s' is too long", path);
    parent_of(path, dir);
    bool has_wal = stat(wal, &st) == 0 && st.st_size > 0;
    bool frozen = network_fs_of(path) || access(dir, W_OK);
    if (frozen && has_wal && network_fs_of(path))
        return err_set(e, ASSAY_EENV,
                       "'%s' is on a network file system and is being written (or was not closed): "
                       "close it on the machine that writes it",
                       path);
    rc = conn_open(&s->c, path, frozen && !has_wal ? CONN_IMMUTABLE : 0, e);
    if (!rc)
        rc = identify(&s->c, &id, e);
    if (rc && frozen && has_wal && rc == ASSAY_EENV)
        return err_wrap(e,
                        "'%s' is in a read-only directory and was not closed cleanly: open it once "
                        "where it can be written",
                        path);
    if (!rc)
        rc = check_readable(&s->c, &id, n, e);
    if (!rc)
        rc = conn_settings(&s->c, false, e);
    return rc;
}

int store_open(const char *path, enum store_mode mode, struct store **out, int *recovered,
               struct err *e) {
    char resolved[PATH_BYTES];
    *out = NULL;
    if (recovered)
        *recovered = 0;
    if (!path) {
        int rc = default_path(resolved, e);
        if (rc)
            return rc;
        path = resolved;
    }
    struct store *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ASSAY_ENOMEM, "out of memory");
    s->mode = mode;
    s->lease_fd = -1;
    int rc = mode == STORE_WRITE ? open_write(s, path, recovered, e) : open_read(s, path, e);
    if (rc) {
        store_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

void store_close(struct store *s) {
    if (!s)
        return;
    if (s->c.db && s->mode == STORE_WRITE)
        lease_close(s);
    conn_close(&s->c); /* the last one checkpoints and removes the -wal file */
    free(s);
}

const char *store_path(const struct store *s) {
    return s->c.path;
}

struct sqlite3 *store_sqlite(struct store *s) {
    return s->c.db;
}
