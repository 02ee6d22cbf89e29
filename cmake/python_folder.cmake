# Sets ty_python_folder, below CMAKE_INSTALL_PREFIX: the first folder there that a python3 searches.
set(ty_python_folder lib/python3/dist-packages)
foreach(ty_python python3 /usr/bin/python3)
    execute_process(COMMAND ${ty_python} -c "import site, sys
prefix = sys.argv[1].rstrip('/') + '/'
folders = site.getsitepackages() + [site.getusersitepackages()]
print(next((f[len(prefix):] for f in folders if f.startswith(prefix + 'lib')), ''), end='')"
        "${CMAKE_INSTALL_PREFIX}" OUTPUT_VARIABLE ty_found ERROR_QUIET RESULT_VARIABLE ty_result)
    if(ty_result EQUAL 0 AND ty_found)
        set(ty_python_folder ${ty_found})
        break()
    endif()
endforeach()
