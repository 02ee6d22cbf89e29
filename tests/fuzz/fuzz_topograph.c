/* Importing topograph cluster models. */
#define FORMAT "topograph"
#include "cluster_import_fuzz.h"
