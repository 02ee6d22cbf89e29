/* Importing nvidia-smi topo -m. */
#define FORMAT "smi"
#define HOST "dgx1-v100" /* its GPUs have NVLinks */
#include "cluster_import_fuzz.h"
