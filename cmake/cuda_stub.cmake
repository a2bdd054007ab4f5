# cuda_stub.cmake -- CUDA libraries that only count, for `plimsoll run` with a CUDA
# build of PyTorch.  They go to a folder of their own: nothing finds them by accident.

# A library with sanitizers cannot be loaded into a Python without them.
if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux" OR sanitize)
    return()
endif()

set(stub_dir ${CMAKE_SOURCE_DIR}/src/vgpu/cuda_stub)
set(stub_out ${CMAKE_BINARY_DIR}/stub)

add_library(plimsoll_stub SHARED ${stub_dir}/core.c ${stub_dir}/ledger.c)
target_include_directories(plimsoll_stub PRIVATE include ${stub_dir})
target_link_libraries(plimsoll_stub PRIVATE plim_strict plimsoll_static ${CMAKE_DL_LIBS}
                      Threads::Threads)
target_link_options(plimsoll_stub PRIVATE -Wl,--version-script,${stub_dir}/core.map)

# plim_cuda_stub(NAME SONAME CODE): NAME.c and names/NAME.txt become SONAME; a function
# that is only a name answers CODE, "not supported".  Each line of the list is a name
# and, if a word follows, what it does, with success: ok: nothing; new: its first
# argument gets a new handle; zero: its second argument, an int, gets 0.
function(plim_cuda_stub stub soname unsupported)
    string(MAKE_C_IDENTIFIER plim_${soname} target)
    file(STRINGS ${stub_dir}/names/${stub}.txt lines)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
                 ${stub_dir}/names/${stub}.txt)
    list(TRANSFORM lines REPLACE "^([^ ]+)$" "MISSING(\\1)" OUTPUT_VARIABLE functions)
    list(TRANSFORM functions REPLACE "^([^ ]+) ok$" "OK(\\1)")
    list(TRANSFORM functions REPLACE "^([^ ]+) new$" "NEW(\\1)")
    list(TRANSFORM functions REPLACE "^([^ ]+) zero$" "ZERO(\\1)")
    list(TRANSFORM lines REPLACE "^([^ ]+).*$" "\\1" OUTPUT_VARIABLE exports)
    list(JOIN functions "\n" functions)
    list(JOIN exports ";\n        " exports)
    # The driver and its management library have no versions of symbols.
    set(version ${soname})
    if(soname MATCHES "^lib(cuda|nvidia-ml)\\.so")
        set(version "")
    endif()
    configure_file(${stub_dir}/missing.c.in ${CMAKE_BINARY_DIR}/cuda_stub/${soname}.c @ONLY)
    configure_file(${stub_dir}/exports.map.in ${CMAKE_BINARY_DIR}/cuda_stub/${soname}.map @ONLY)
    string(REGEX REPLACE ".*\\.so\\." "" number ${soname})
    add_library(${target} SHARED ${stub_dir}/${stub}.c
                ${CMAKE_BINARY_DIR}/cuda_stub/${soname}.c)
    target_include_directories(${target} PRIVATE include ${stub_dir})
    target_compile_definitions(${target} PRIVATE PLIM_STUB_MAJOR=${number})
    target_link_libraries(${target} PRIVATE plim_strict plimsoll_stub ${CMAKE_DL_LIBS} Threads::Threads)
    target_link_options(${target} PRIVATE -Wl,-soname,${soname}
                        -Wl,--version-script,${CMAKE_BINARY_DIR}/cuda_stub/${soname}.map)
    set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME ${soname} SUFFIX ""
                          NO_SONAME ON BUILD_RPATH "$ORIGIN" INSTALL_RPATH "$ORIGIN")
    set_property(GLOBAL APPEND PROPERTY plim_stubs ${target})
endfunction()

plim_cuda_stub(cuda libcuda.so.1 801)
plim_cuda_stub(cudart libcudart.so.12 801)
plim_cuda_stub(cudart libcudart.so.13 801)
plim_cuda_stub(cublas libcublas.so.12 15)
plim_cuda_stub(cublas libcublas.so.13 15)
plim_cuda_stub(cublasLt libcublasLt.so.12 15)
plim_cuda_stub(cublasLt libcublasLt.so.13 15)
plim_cuda_stub(cudnn libcudnn.so.9 3000)
plim_cuda_stub(nvml libnvidia-ml.so.1 3)

get_property(stubs GLOBAL PROPERTY plim_stubs)
set_target_properties(plimsoll_stub ${stubs} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${stub_out})
install(TARGETS plimsoll_stub ${stubs}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/plimsoll/stub)

configure_file(${stub_dir}/front_cuda.py share/plimsoll/front_cuda.py COPYONLY)
install(FILES ${stub_dir}/front_cuda.py DESTINATION ${CMAKE_INSTALL_DATADIR}/plimsoll)
