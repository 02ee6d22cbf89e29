/* Importing DeepSpeed configurations, for a small model. */
#define MODEL "mlp"
#include "import_fuzz.h"
