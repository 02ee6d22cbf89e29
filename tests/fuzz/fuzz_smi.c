/* Importing nvidia-smi topo -m. */
#define FORMAT "smi"
#include "cluster_import_fuzz.h"
