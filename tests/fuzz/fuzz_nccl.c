/* Importing NCCL and RCCL topology XML. */
#define FORMAT "nccl"
#include "cluster_import_fuzz.h"
