/* What this binary is: written by the build from git. */
#ifndef HARNESS_CORE_VERSION_H
#define HARNESS_CORE_VERSION_H
extern const char assay_version[];    /* git describe --always --dirty */
extern const char assay_git_commit[]; /* 40 hex digits or "unknown" */
#endif
