// Everything imports all raw bindings and says what their first call gives.
package main

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/zz_generated/efadv"
	"github.com/goverbs/goverbs/zz_generated/ibverbs"
	"github.com/goverbs/goverbs/zz_generated/mlx5dv"
	"github.com/goverbs/goverbs/zz_generated/rdmacm"
)

func main() {
	_, err := ibverbs.GetDeviceList(nil)
	report(err)
	_, err = mlx5dv.Library()
	report(err)
	_, err = efadv.Library()
	report(err)
	_, err = rdmacm.GetDevices(nil)
	report(err)
}

func report(err error) {
	if errors.Is(err, errors.ErrUnsupported) {
		fmt.Print("unsupported: ")
	}
	fmt.Println(err)
}
