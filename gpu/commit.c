#include "observed_file.h"

#ifndef MR_COMMIT
#define MR_COMMIT "unknown"
#endif

const char gpu_commit[] = MR_COMMIT;
