/* The version strings. */
#include "harness/core/version.h"
#ifndef ASSAY_VERSION
#define ASSAY_VERSION "unknown"
#define ASSAY_GIT_COMMIT "unknown"
#endif
const char assay_version[] = ASSAY_VERSION;
const char assay_git_commit[] = ASSAY_GIT_COMMIT;
